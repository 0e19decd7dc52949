// SPDX-License-Identifier: Apache-2.0
// A dataset's batches in the order of training, made ahead of their use: of every step this
// data-parallel rank's micro-batches, one after the other, without end.
//
//   BatchLoader loader(*dataset, {.num_samples = dataset->size(), .batch_size = 8,
//                                 .micro_batches = 2, .seed = 1}, mesh);
//   for (int64_t step = 0; step < epochs * loader.steps_per_epoch(); ++step) {
//     for (int64_t m = 0; m < 2; ++m) TESSERA_ASSIGN_OR_RETURN(data::Batch batch, loader.Next());
//   }
//
// Which samples a step has is a function of its number (data/dataset/sampler.h), so that ranks
// never read the same one twice and a run that continues at step n begins there. Ranks that share a
// model get the same batches.
#ifndef TESSERA_TRAIN_LOOP_BATCH_LOADER_H_
#define TESSERA_TRAIN_LOOP_BATCH_LOADER_H_

#include <cstdint>

#include "base/status.h"
#include "data/dataset/dataset.h"
#include "data/dataset/prefetching_loader.h"
#include "data/dataset/sampler.h"
#include "dist/mesh/mesh.h"

namespace tessera::train {

class BatchLoader {
 public:
  // From step `first_step` on, which counts from 0. The dataset outlives it.
  BatchLoader(const data::Dataset& dataset, const data::SamplerOptions& order,
              const dist::Mesh& mesh, int64_t first_step = 0);

  // The next micro-batch. One thread at a time.
  StatusOr<data::Batch> Next();
  // Steps until all samples of an epoch have been seen; at least 1.
  int64_t steps_per_epoch() const;

 private:
  const data::Sampler sampler_;
  const int64_t data_ranks_;
  data::PrefetchingLoader loader_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_LOOP_BATCH_LOADER_H_
