// SPDX-License-Identifier: Apache-2.0
// A part of a dataset: the samples [begin, end) of its order, or of a shuffled one.
//
//   auto train = std::make_shared<Subset>(all, 0, all->size() - held_out);
//   auto [kept, held_out] = SplitDataset(all, {.fraction = 0.1});
//   auto drawn = std::make_shared<Subset>(all, 0, 100, KeyedPermutation(all->size(), seed, 0));
#ifndef TESSERA_DATA_DATASET_SUBSET_H_
#define TESSERA_DATA_DATASET_SUBSET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "data/dataset/dataset.h"
#include "data/dataset/keyed_permutation.h"

namespace tessera::data {

class Subset : public Dataset {
 public:
  // Throws Error unless 0 <= begin <= end <= all->size().
  Subset(std::shared_ptr<const Dataset> all, int64_t begin, int64_t end,
         std::optional<KeyedPermutation> order = std::nullopt);

  int64_t size() const override { return end_ - begin_; }
  StatusOr<Batch> MakeBatch(std::span<const Sample> samples) const override;
  std::optional<int64_t> length_of(int64_t index) const override {
    return all_->length_of(IndexOf(index));
  }

 private:
  // Of a sample, among all.
  int64_t IndexOf(int64_t index) const;

  std::shared_ptr<const Dataset> all_;
  int64_t begin_;
  int64_t end_;
  std::optional<KeyedPermutation> order_;
};

// Which samples SplitDataset keeps from training.
struct HoldOut {
  double fraction = 0.2;  // of [0, 1): the share that is held out
  bool from_end = false;  // the last samples; else a random choice
  uint64_t seed = 0;
};

// How many of so many samples are held out: the nearest number, but at least one is left.
int64_t HeldOutCount(int64_t size, double fraction);

// The samples to train on, in the order of the data, and those held out, a function of the seed
// (keyed_permutation.h) and in a random order unless they are the end. Where the share is less than
// half a sample they are `all` itself and nullptr. At least one is left to train on.
// Throws Error for a fraction out of its range and for an empty dataset.
std::pair<std::shared_ptr<const Dataset>, std::shared_ptr<const Dataset>> SplitDataset(
    std::shared_ptr<const Dataset> all, const HoldOut& options = {});

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_SUBSET_H_
