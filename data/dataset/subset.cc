#include "data/dataset/subset.h"

#include <utility>
#include <vector>

#include "core/error.h"

namespace tessera::data {

Subset::Subset(std::shared_ptr<const Dataset> all, int64_t begin, int64_t end,
               std::optional<KeyedPermutation> order)
    : all_(std::move(all)), begin_(begin), end_(end), order_(order) {
  TESSERA_CHECK(0 <= begin && begin <= end && end <= all_->size(), "Subset", "samples [", begin,
                ", ", end, ") of ", all_->size());
}

absl::StatusOr<Batch> Subset::MakeBatch(std::span<const Sample> samples) const {
  std::vector<Sample> moved(samples.begin(), samples.end());
  for (Sample& sample : moved) {
    TESSERA_CHECK(sample.index >= 0 && sample.index < size(), "Subset", "there is no sample ",
                  sample.index);
    sample.index += begin_;
    if (order_) sample.index = (*order_)(sample.index);
  }
  return all_->MakeBatch(moved);
}

}  // namespace tessera::data
