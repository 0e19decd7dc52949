// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "data/dataset/keyed_permutation.h"

namespace tessera::data {
namespace {

int64_t QuotientUp(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace

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
  const DataPosition& begin = options_.begin;
  if (options_.left_in_epoch == -1) {
    options_.left_in_epoch = options_.samples_per_epoch - begin.index;
  }
  TESSERA_CHECK(begin.step >= 0 && begin.samples >= 0 && begin.epoch >= 0 && begin.index >= 0 &&
                    options_.left_in_epoch >= 0 &&
                    options_.left_in_epoch <= options.num_samples - begin.index,
                "Sampler", options_.left_in_epoch, " samples are left in epoch ", begin.epoch,
                " from its sample ", begin.index, ", of ", options.num_samples);
}

Sampler::Place Sampler::PlaceOf(int64_t position) const {
  const DataPosition& begin = options_.begin;
  const int64_t drawn = position - begin.samples;
  if (drawn < options_.left_in_epoch) return {begin.epoch, begin.index + drawn};
  const int64_t later = drawn - options_.left_in_epoch;
  return {begin.epoch + 1 + later / options_.samples_per_epoch, later % options_.samples_per_epoch};
}

int64_t Sampler::EpochSize(int64_t epoch) const {
  const DataPosition& begin = options_.begin;
  return epoch == begin.epoch ? begin.index + options_.left_in_epoch : options_.samples_per_epoch;
}

int64_t Sampler::Drawn(const Place& place) const {
  if (!options_.shuffle) return place.index;
  return KeyedPermutation(options_.num_samples, options_.seed,
                          static_cast<uint64_t>(place.epoch))(place.index);
}

Sampler::Group Sampler::GroupOf(const Place& place) const {
  const int64_t size = options_.length_of == nullptr ? 1 : options_.length_group;
  const int64_t begin = place.index / size * size;
  const int64_t end = std::min(begin + size, EpochSize(place.epoch));
  Group group = {.begin = {place.epoch, begin}};
  std::vector<std::pair<int64_t, int64_t>> by_length;  // with their samples
  for (int64_t i = begin; i < end; ++i) {
    const int64_t sample = Drawn({place.epoch, i});
    by_length.emplace_back(size == 1 ? 0 : options_.length_of(sample), sample);
  }
  std::stable_sort(by_length.begin(), by_length.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [length, sample] : by_length) group.samples.push_back(sample);
  return group;
}

int64_t Sampler::SampleAt(int64_t position) const {
  TESSERA_CHECK(position >= options_.begin.samples, "Sampler", "position is ", position,
                "; the line begins at ", options_.begin.samples);
  const Place place = PlaceOf(position);
  return GroupOf(place).At(place);
}

std::vector<Sample> Sampler::Rows(const BatchPlace& place) const {
  const DataPosition& line = options_.begin;
  TESSERA_CHECK(place.step >= line.step && place.micro_batch >= 0 &&
                    place.micro_batch < options_.micro_batches && place.world >= 1 &&
                    place.rank >= 0 && place.rank < place.world,
                "Sampler::Rows", "step ", place.step, " from ", line.step, " on, micro-batch ",
                place.micro_batch, " of ", options_.micro_batches, ", rank ", place.rank, " of ",
                place.world);
  const int64_t begin =
      PositionOf(place.step, place.world) +
      (place.rank * options_.micro_batches + place.micro_batch) * options_.batch_size;
  const int64_t end = std::min({begin + options_.batch_size,
                                PositionOf(place.step + 1, place.world), options_.end_position});
  std::vector<Sample> rows;
  Group group;
  for (int64_t position = begin; position < end; ++position) {
    const Place at = PlaceOf(position);
    if (!group.Has(at)) group = GroupOf(at);
    rows.push_back({group.At(at), position});
  }
  return rows;
}

DataPosition Sampler::After(int64_t step, int64_t world) const {
  const DataPosition& begin = options_.begin;
  TESSERA_CHECK(step >= begin.step, "Sampler::After", "step ", step, " lies before ", begin.step);
  const int64_t samples =
      std::min(PositionOf(step, world), std::max(options_.end_position, begin.samples));
  const Place place = PlaceOf(samples);
  return {.step = step, .samples = samples, .epoch = place.epoch, .index = place.index};
}

bool Sampler::EndsEpoch(int64_t step, int64_t world) const {
  const DataPosition& begin = options_.begin;
  if (step == begin.step) return begin.samples > 0 && begin.index == 0;
  return After(step, world).epoch > After(step - 1, world).epoch;
}

int64_t Sampler::SamplesOf(double epochs, int64_t world) const {
  const DataPosition& begin = options_.begin;
  const int64_t size = options_.samples_per_epoch;
  auto line = static_cast<int64_t>(std::ceil(epochs * static_cast<double>(size)));
  if (options_.steps_end_with_epochs) {
    const auto of_epoch = static_cast<int64_t>(StepsPerEpoch(world));
    const auto steps = static_cast<int64_t>(std::ceil(epochs * static_cast<double>(of_epoch)));
    line = steps / of_epoch * size + std::min(steps % of_epoch * StepSamples(world), size);
  }
  const int64_t before = begin.epoch * size + begin.index;  // were all epochs alike
  // What the epoch of `begin` has more or less than others.
  const int64_t more = epochs >= static_cast<double>(begin.epoch + 1)
                           ? begin.index + options_.left_in_epoch - size
                           : 0;
  return begin.samples + std::max<int64_t>(0, line - before + more);
}

int64_t Sampler::StepsFor(int64_t samples, int64_t world) const {
  const int64_t left = std::max<int64_t>(0, samples - options_.begin.samples);
  const int64_t of_step = StepSamples(world);
  if (!options_.steps_end_with_epochs || left <= options_.left_in_epoch) {
    return options_.begin.step + QuotientUp(left, of_step);
  }
  const int64_t size = options_.samples_per_epoch;
  const int64_t later = left - options_.left_in_epoch;
  return options_.begin.step + QuotientUp(options_.left_in_epoch, of_step) +
         later / size * QuotientUp(size, of_step) + QuotientUp(later % size, of_step);
}

double Sampler::StepsPerEpoch(int64_t world) const {
  const double steps =
      static_cast<double>(options_.samples_per_epoch) / static_cast<double>(StepSamples(world));
  return options_.steps_end_with_epochs ? std::ceil(steps) : steps;
}

int64_t Sampler::PositionOf(int64_t step, int64_t world) const {
  const DataPosition& begin = options_.begin;
  const int64_t of_step = StepSamples(world);
  const int64_t steps = step - begin.step;
  if (!options_.steps_end_with_epochs) return begin.samples + steps * of_step;
  const int64_t first = QuotientUp(options_.left_in_epoch, of_step);
  if (steps < first) return begin.samples + steps * of_step;
  const int64_t size = options_.samples_per_epoch;
  const int64_t of_epoch = QuotientUp(size, of_step);
  const int64_t later = steps - first;
  return begin.samples + options_.left_in_epoch + later / of_epoch * size +
         later % of_epoch * of_step;
}

}  // namespace tessera::data
