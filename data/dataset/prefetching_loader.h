// SPDX-License-Identifier: Apache-2.0
// Makes batches ahead of their use, on one thread of its own.
//
//   PrefetchingLoader loader([&](int64_t i) { return train->MakeBatch(RowsOfBatch(i)); },
//                            {.begin = first, .end = last});
//   while (true) {
//     TESSERA_ASSIGN_OR_RETURN(std::optional<Batch> batch, loader.Next());
//     if (!batch) break;
//     ...
//   }
//
// Batches come in order. A failure comes in its place in the order, and again at every later call.
// The destructor may be called at any time: it waits for the batch being made, and no longer.
#ifndef TESSERA_DATA_DATASET_PREFETCHING_LOADER_H_
#define TESSERA_DATA_DATASET_PREFETCHING_LOADER_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>

#include "base/status.h"
#include "data/dataset/dataset.h"

namespace tessera::data {

struct PrefetchingOptions {
  int64_t begin = 0;  // number of the first batch
  int64_t end = std::numeric_limits<int64_t>::max();
  int64_t depth = 2;  // batches that are ready or being made, >= 1
};

class PrefetchingLoader {
 public:
  // `make` gives the batch of a number; it is called with begin, begin + 1, ... on the loader's
  // thread, and what it uses must outlive the loader. An exception of it becomes a status.
  using MakeBatchFn = std::function<StatusOr<Batch>(int64_t)>;

  PrefetchingLoader(MakeBatchFn make, const PrefetchingOptions& options);
  ~PrefetchingLoader();
  PrefetchingLoader(const PrefetchingLoader&) = delete;
  PrefetchingLoader& operator=(const PrefetchingLoader&) = delete;

  // The next batch, waiting for it if need be; nullopt after the last one. One thread at a time.
  StatusOr<std::optional<Batch>> Next();

 private:
  class Worker;  // the thread, and what it has made
  std::unique_ptr<Worker> worker_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_PREFETCHING_LOADER_H_
