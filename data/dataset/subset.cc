// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/subset.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tessera::data {

Subset::Subset(std::shared_ptr<const Dataset> all, int64_t begin, int64_t end,
               std::optional<KeyedPermutation> order)
    : all_(std::move(all)), begin_(begin), end_(end), order_(order) {
  TESSERA_CHECK(0 <= begin && begin <= end && end <= all_->size(), "Subset", "samples [", begin,
                ", ", end, ") of ", all_->size());
}

int64_t Subset::IndexOf(int64_t index) const {
  TESSERA_CHECK(index >= 0 && index < size(), "Subset", "there is no sample ", index);
  return order_ ? (*order_)(begin_ + index) : begin_ + index;
}

StatusOr<Batch> Subset::MakeBatch(std::span<const Sample> samples) const {
  std::vector<Sample> moved(samples.begin(), samples.end());
  for (Sample& sample : moved) sample.index = IndexOf(sample.index);
  return all_->MakeBatch(moved);
}

int64_t HeldOutCount(int64_t size, double fraction) {
  const int64_t wanted = std::llround(static_cast<double>(size) * fraction);
  return std::min(wanted, size - 1);
}

std::pair<std::shared_ptr<const Dataset>, std::shared_ptr<const Dataset>> SplitDataset(
    std::shared_ptr<const Dataset> all, const HoldOut& options) {
  const int64_t size = all->size();
  TESSERA_CHECK(size > 0, "SplitDataset", "the dataset is empty");
  TESSERA_CHECK(options.fraction >= 0 && options.fraction < 1, "SplitDataset", "a fraction of ",
                options.fraction);
  const int64_t train = size - HeldOutCount(size, options.fraction);
  std::optional<KeyedPermutation> order;
  if (!options.from_end) order.emplace(size, options.seed, /*epoch=*/0);
  std::shared_ptr<const Dataset> held_out;
  if (train < size) held_out = std::make_shared<Subset>(all, train, size, order);
  return {std::make_shared<Subset>(all, 0, train, order), held_out};
}

}  // namespace tessera::data
