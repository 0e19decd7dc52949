// SPDX-License-Identifier: Apache-2.0
// A program's own samples by their number, and how some of them become a batch.
//
//   struct Pair { std::string question; std::string answer; };
//   data.train = std::make_shared<MapDataset<Pair>>(
//       /*size=*/pairs.size(),
//       /*get_item=*/[&](int64_t index) -> StatusOr<Pair> { return pairs[index]; },
//       /*collate=*/[&](std::span<const Pair> some) -> StatusOr<Batch> { return ToBatch(some); });
//   Trainer trainer(config, *model, data, mesh);
//
// (`Dataset` and `collate_fn` of PyTorch's loaders.) The trainer says which samples: shuffled by
// the seed, cut for ranks and micro-batches, resumed where the run was (sampler.h). Both functions
// are called from threads that make batches ahead, on every rank: they give the same for the same
// samples. What they fail with, exceptions included, is one line with the sample's number.
#ifndef TESSERA_DATA_DATASET_MAP_DATASET_H_
#define TESSERA_DATA_DATASET_MAP_DATASET_H_

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/dataset/sample_collation.h"

namespace tessera::data {

template <typename Item>
class MapDataset : public Dataset {
 public:
  using GetItem = std::function<StatusOr<Item>(int64_t index)>;  // of [0, size)
  using Collate = std::function<StatusOr<Batch>(std::span<const Item> items)>;

  MapDataset(int64_t size, GetItem get_item, Collate collate)
      : size_(size), get_item_(std::move(get_item)), collate_(std::move(collate)) {
    TESSERA_CHECK(size >= 0 && get_item_ != nullptr && collate_ != nullptr, "MapDataset", "size ",
                  size, " or a function is missing");
  }

  int64_t size() const override { return size_; }

  StatusOr<Batch> MakeBatch(std::span<const Sample> samples) const override {
    std::vector<Item> items;
    for (const Sample& sample : samples) {
      TESSERA_CHECK(sample.index >= 0 && sample.index < size_, "MapDataset", "sample ",
                    sample.index, " of ", size_);
      TESSERA_ASSIGN_OR_RETURN(Item item, GuardedSample<Item>(Concat("sample ", sample.index), [&] {
                                 return get_item_(sample.index);
                               }));
      items.push_back(std::move(item));
    }
    const std::string where =
        samples.empty() ? "no samples" : Concat("the batch of sample ", samples[0].index);
    return GuardedSample<Batch>(where, [&] { return collate_(items); });
  }

 private:
  const int64_t size_;
  const GetItem get_item_;
  const Collate collate_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_MAP_DATASET_H_
