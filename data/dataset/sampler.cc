#include "data/dataset/sampler.h"

#include <algorithm>

#include "core/error.h"
#include "data/dataset/keyed_permutation.h"

namespace tessera::data {

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  TESSERA_CHECK(options.num_samples >= 1, "Sampler", "num_samples is ", options.num_samples);
  TESSERA_CHECK(options.batch_size >= 1, "Sampler", "batch_size is ", options.batch_size);
  TESSERA_CHECK(options.micro_batches >= 1, "Sampler", "micro_batches is ", options.micro_batches);
  if (options_.samples_per_epoch == 0) options_.samples_per_epoch = options.num_samples;
  TESSERA_CHECK(
      options_.samples_per_epoch >= 1 && options_.samples_per_epoch <= options.num_samples,
      "Sampler", options_.samples_per_epoch, " samples per epoch of ", options.num_samples);
}

int64_t Sampler::SampleAt(int64_t position) const {
  TESSERA_CHECK(position >= 0, "Sampler", "position is ", position);
  const int64_t index = position % options_.samples_per_epoch;
  if (!options_.shuffle) return index;
  const auto epoch = static_cast<uint64_t>(position / options_.samples_per_epoch);
  return KeyedPermutation(options_.num_samples, options_.seed, epoch)(index);
}

std::vector<Sample> Sampler::Rows(const BatchPlace& place) const {
  TESSERA_CHECK(place.step >= 0 && place.micro_batch >= 0 &&
                    place.micro_batch < options_.micro_batches && place.world >= 1 &&
                    place.rank >= 0 && place.rank < place.world,
                "Sampler::Rows", "step ", place.step, ", micro-batch ", place.micro_batch, " of ",
                options_.micro_batches, ", rank ", place.rank, " of ", place.world);
  const int64_t begin =
      place.step * GlobalBatch(place.world) +
      (place.rank * options_.micro_batches + place.micro_batch) * options_.batch_size;
  const int64_t end = std::min(begin + options_.batch_size, options_.end_position);
  std::vector<Sample> rows;
  for (int64_t position = begin; position < end; ++position) {
    rows.push_back({SampleAt(position), position});
  }
  return rows;
}

int64_t Sampler::StepsFor(int64_t positions, int64_t world) const {
  const int64_t global_batch = GlobalBatch(world);
  return positions / global_batch + (positions % global_batch != 0);
}

}  // namespace tessera::data
