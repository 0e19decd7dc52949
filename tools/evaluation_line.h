// SPDX-License-Identifier: Apache-2.0
// What `tessera eval` and `tessera predict` show of an evaluation: how far it is, and its result.
#ifndef TESSERA_TOOLS_EVALUATION_LINE_H_
#define TESSERA_TOOLS_EVALUATION_LINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "data/dataset/dataset.h"
#include "train/evaluator.h"
#include "train/report/progress.h"
#include "train/run/run_setup.h"

namespace tessera::tools {

// Data that counts the rows of the batches that are made of it, and shows them on standard error as
// a progress that ends with this object.
class WatchedData : public data::Dataset {
 public:
  // `what` is done with `data`: "eval". At most so many rows are asked for; 0: all.
  WatchedData(const data::Dataset& data, const std::string& what, int64_t most_rows = 0);

  int64_t size() const override { return data_.size(); }
  StatusOr<data::Batch> MakeBatch(std::span<const data::Sample> samples) const override;
  std::optional<int64_t> length_of(int64_t index) const override { return data_.length_of(index); }
  std::string NameOf(int64_t index) const override { return data_.NameOf(index); }

  int64_t rows() const { return *rows_; }

 private:
  const data::Dataset& data_;
  const int64_t most_rows_;
  const std::unique_ptr<train::WorkProgress> progress_;
  const std::unique_ptr<std::atomic<int64_t>> rows_;
};

// "loss 0.412345  perplexity 1.5104  accuracy 0.8211  samples 872", of so many rows.
std::string EvaluationLine(const train::RunSetup& setup, const train::EvaluationResult& found,
                           int64_t rows);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_EVALUATION_LINE_H_
