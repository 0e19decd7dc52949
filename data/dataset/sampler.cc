// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/sampler.h"

#include <algorithm>
#include <utility>

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
  TESSERA_CHECK(options.length_of == nullptr || options.length_group >= 1, "Sampler",
                "length_group is ", options.length_group);
}

int64_t Sampler::Drawn(int64_t epoch, int64_t index) const {
  if (!options_.shuffle) return index;
  return KeyedPermutation(options_.num_samples, options_.seed, static_cast<uint64_t>(epoch))(index);
}

Sampler::Group Sampler::GroupAt(int64_t position) const {
  const int64_t epoch = position / options_.samples_per_epoch;
  const int64_t index = position % options_.samples_per_epoch;
  const int64_t size = options_.length_of == nullptr ? 1 : options_.length_group;
  const int64_t begin = index / size * size;
  const int64_t end = std::min(begin + size, options_.samples_per_epoch);
  Group group = {.begin = epoch * options_.samples_per_epoch + begin, .samples = {}};
  std::vector<std::pair<int64_t, int64_t>> by_length;  // with their samples
  for (int64_t i = begin; i < end; ++i) {
    const int64_t sample = Drawn(epoch, i);
    by_length.emplace_back(size == 1 ? 0 : options_.length_of(sample), sample);
  }
  std::stable_sort(by_length.begin(), by_length.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [length, sample] : by_length) group.samples.push_back(sample);
  return group;
}

int64_t Sampler::SampleAt(int64_t position) const {
  TESSERA_CHECK(position >= 0, "Sampler", "position is ", position);
  const Group group = GroupAt(position);
  return group.samples[static_cast<size_t>(position - group.begin)];
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
  Group group = {.begin = 0, .samples = {}};
  for (int64_t position = begin; position < end; ++position) {
    if (position - group.begin >= std::ssize(group.samples)) group = GroupAt(position);
    rows.push_back({group.samples[static_cast<size_t>(position - group.begin)], position});
  }
  return rows;
}

int64_t Sampler::StepsFor(int64_t positions, int64_t world) const {
  const int64_t global_batch = GlobalBatch(world);
  return positions / global_batch + (positions % global_batch != 0);
}

}  // namespace tessera::data
