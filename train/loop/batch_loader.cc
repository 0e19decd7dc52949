// SPDX-License-Identifier: Apache-2.0
#include "train/loop/batch_loader.h"

#include <optional>
#include <utility>

namespace tessera::train {

BatchLoader::BatchLoader(const data::Dataset& dataset, const data::SamplerOptions& order,
                         const dist::Mesh& mesh, int64_t first_step)
    : sampler_(order),
      data_ranks_(mesh.data_ranks()),
      loader_(
          [&dataset, this, micro_batches = order.micro_batches,
           rank = mesh.data_rank()](int64_t number) {
            return dataset.MakeBatch(sampler_.Rows({.step = number / micro_batches,
                                                    .micro_batch = number % micro_batches,
                                                    .rank = rank,
                                                    .world = data_ranks_}));
          },
          {.begin = first_step * order.micro_batches}) {}

StatusOr<data::Batch> BatchLoader::Next() {
  TESSERA_ASSIGN_OR_RETURN(std::optional<data::Batch> batch, loader_.Next());
  if (!batch) return Internal("the training data ended");
  return *std::move(batch);
}

int64_t BatchLoader::steps_per_epoch() const {
  const int64_t of_step = sampler_.StepSamples(data_ranks_);
  return (sampler_.samples_per_epoch() + of_step - 1) / of_step;
}

}  // namespace tessera::train
