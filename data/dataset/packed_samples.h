// SPDX-License-Identifier: Apache-2.0
// Samples of a token dataset packed into rows, whole, and each by itself within its row.
//
//   const auto rows = PackedSamples::Create(chats, {.row_length = 1024, .seed = 0});
//   TESSERA_ASSIGN_OR_RETURN(Batch batch, rows->MakeBatch(samples));   // a sample is a row
//   // input_ids, targets, position_ids int64 and document_ids int32 [rows, tokens]
//
// No sample is split. Position ids begin anew with each, attention stays inside (a mask of kind
// "document ids"), and no token predicts the first of the sample behind it, so that the losses of a
// row's targets, and their gradients, are those of its samples in rows of their own.
//
// Which samples share a row is a function of their lengths and the seed: they are shuffled
// (keyed_permutation.h), and windows of that order are packed by best fit, the longest sample
// first, each into the row that it leaves the least room in.
#ifndef TESSERA_DATA_DATASET_PACKED_SAMPLES_H_
#define TESSERA_DATA_DATASET_PACKED_SAMPLES_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/dataset/token_dataset.h"

namespace tessera::data {

// How samples are packed.
struct SamplePackingOptions {
  int64_t row_length = 0;  // tokens of a row; at least those of the longest sample
  uint64_t seed = 0;
  int64_t window = 8192;  // samples that are packed together; >= 1
};

// The indices of `lengths` (each of [0, row_length]) by rows.
std::vector<std::vector<int64_t>> PackIntoRows(std::span<const int64_t> lengths,
                                               const SamplePackingOptions& options);

class PackedSamples : public TokenDataset {
 public:
  // `samples` have no document ids of their own. Throws Error for a sample that is longer than a
  // row, and for options out of their range.
  static std::shared_ptr<const PackedSamples> Create(std::shared_ptr<const TokenDataset> samples,
                                                     const SamplePackingOptions& options);

  int64_t size() const override { return std::ssize(rows_); }
  int64_t seq_len() const override { return row_length_; }
  int64_t length(int64_t index) const override;
  bool has_document_ids() const override { return true; }
  Status Fill(int64_t index, const SampleRow& row) const override;

  // Which of the samples a row holds, in order.
  const std::vector<int64_t>& samples_of(int64_t row) const {
    return rows_[static_cast<size_t>(row)];
  }

 private:
  PackedSamples(std::shared_ptr<const TokenDataset> samples, int64_t row_length,
                std::vector<std::vector<int64_t>> rows)
      : samples_(std::move(samples)), row_length_(row_length), rows_(std::move(rows)) {}

  std::shared_ptr<const TokenDataset> samples_;
  int64_t row_length_;
  std::vector<std::vector<int64_t>> rows_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_PACKED_SAMPLES_H_
