// SPDX-License-Identifier: Apache-2.0
// Several datasets mixed by weight.
//
//   TESSERA_ASSIGN_OR_RETURN(auto blend, BlendedDataset::Create({books, web}, {0.3, 0.7}));
//
// Sample i belongs to the dataset whose share of the first i + 1 samples lags furthest behind its
// weight, so every stretch of samples is mixed as the whole. (Megatron's blends go by the first i
// samples: as many of each, in another order.) Here the
// pattern repeats after kPeriod samples, in which dataset d has round(kPeriod * weight) of them (at
// least one): the place of any sample is known from one table, whose size does not depend on the
// number of samples.
//
// The blend has as many samples as it takes to see every dataset whole at least once; smaller ones
// come again from their beginning, which keeps the proportions. (A shuffling sampler over the blend
// shuffles all of that.)
#ifndef TESSERA_DATA_DATASET_BLENDED_DATASET_H_
#define TESSERA_DATA_DATASET_BLENDED_DATASET_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "data/dataset/token_dataset.h"

namespace tessera::data {

class BlendedDataset : public TokenDataset {
 public:
  static constexpr int64_t kPeriod = 1 << 16;

  // Weights are positive and finite and need not sum to 1; at most 1024 datasets, all with one
  // seq_len and none empty. InvalidArgument otherwise.
  static StatusOr<std::shared_ptr<const BlendedDataset>> Create(
      std::vector<std::shared_ptr<const TokenDataset>> datasets,
      const std::vector<double>& weights);

  int64_t size() const override { return size_; }
  int64_t seq_len() const override { return datasets_[0]->seq_len(); }
  bool has_document_ids() const override { return datasets_[0]->has_document_ids(); }
  int64_t length(int64_t index) const override;
  Status Fill(int64_t index, const SampleRow& row) const override;

  struct Place {
    int64_t dataset;
    int64_t index;  // within the dataset
  };
  // index >= 0, also beyond size().
  Place PlaceOf(int64_t index) const;

 private:
  BlendedDataset() = default;
  void FillTable(const std::vector<int64_t>& shares);

  struct Slot {
    int32_t dataset;
    int32_t before;  // slots of the same dataset earlier in the period
  };
  std::vector<std::shared_ptr<const TokenDataset>> datasets_;
  std::vector<int64_t> shares_;  // slots of each dataset in a period
  std::vector<Slot> table_;
  int64_t size_ = 0;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_BLENDED_DATASET_H_
