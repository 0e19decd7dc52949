// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/subset.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tessera::data {
namespace {

// Some samples of a dataset, in the dataset's order.
class ChosenSamples : public Dataset {
 public:
  ChosenSamples(std::shared_ptr<const Dataset> all, std::vector<int64_t> indices)
      : all_(std::move(all)), indices_(std::move(indices)) {
    std::sort(indices_.begin(), indices_.end());
  }

  int64_t size() const override { return std::ssize(indices_); }
  StatusOr<Batch> MakeBatch(std::span<const Sample> samples) const override {
    std::vector<Sample> moved(samples.begin(), samples.end());
    for (Sample& sample : moved) sample.index = IndexOf(sample.index);
    return all_->MakeBatch(moved);
  }
  std::optional<int64_t> length_of(int64_t index) const override {
    return all_->length_of(IndexOf(index));
  }
  std::string NameOf(int64_t index) const override { return all_->NameOf(IndexOf(index)); }

 private:
  int64_t IndexOf(int64_t index) const {
    TESSERA_CHECK(index >= 0 && index < size(), "SplitDataset", "there is no sample ", index);
    return indices_[static_cast<size_t>(index)];
  }

  const std::shared_ptr<const Dataset> all_;
  std::vector<int64_t> indices_;
};

}  // namespace

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
  if (train == size) return {all, nullptr};
  if (options.from_end) {
    return {std::make_shared<Subset>(all, 0, train), std::make_shared<Subset>(all, train, size)};
  }
  const KeyedPermutation order(size, options.seed, /*epoch=*/0);
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < train; ++i) kept.push_back(order(i));
  return {std::make_shared<ChosenSamples>(all, std::move(kept)),
          std::make_shared<Subset>(all, train, size, order)};
}

}  // namespace tessera::data
