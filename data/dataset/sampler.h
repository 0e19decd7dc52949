// SPDX-License-Identifier: Apache-2.0
// Which samples make up a batch: a function of the step, not a state.
//
//   Sampler sampler({.num_samples = train->size(), .batch_size = 8, .micro_batches = 4});
//   std::vector<Sample> rows =
//       sampler.Rows({.step = 120, .micro_batch = 2, .rank = 1, .world = 4});
//
// All samples ever drawn stand in one line. The row `row` of a batch has the position
//   begin.samples + (step - begin.step) * StepSamples(world)       (or PositionOf(step))
//       + (rank * micro_batches + micro_batch) * batch_size + row,
// so a step takes the same set of samples on any world size with the same global batch, any rank
// can tell any other's share, and a run resumes by starting at a later step. A run that resumes
// with another global batch says where it is in the line (`begin`): no sample is skipped or
// repeated. A rank's micro-batches are neighbours: their gradients are summed before they travel
// (dist/store). Epochs run on without a break: a batch may hold the end of one epoch and the
// beginning of the next, unless an epoch has a multiple of the global batch (`drop_last`). With
// `steps_end_with_epochs` no batch does: an epoch's last step has the remaining samples. Within an
// epoch the order is the KeyedPermutation of (seed, epoch) over all samples, or 0, 1, 2, ...
// without shuffling; an epoch draws the first samples_per_epoch of it. With `length_of`, each
// `length_group` neighbours of that order are sorted by length, the longest first, so that batches
// have samples of like lengths.
#ifndef TESSERA_DATA_DATASET_SAMPLER_H_
#define TESSERA_DATA_DATASET_SAMPLER_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "data/dataset/dataset.h"

namespace tessera::data {

// Where a run is in the line of samples: `samples` were drawn in the first `step` steps, and
// the next one is number `index` of epoch `epoch`. The three agree where the global batch never
// changed.
struct DataPosition {
  int64_t step = 0;
  int64_t samples = 0;
  int64_t epoch = 0;
  int64_t index = 0;
  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

// Which samples there are, how a step is cut, and in which order they are drawn.
struct SamplerOptions {
  int64_t num_samples = 0;    // >= 1
  int64_t batch_size = 1;     // rows of one micro-batch on one rank
  int64_t micro_batches = 1;  // of one optimizer step
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t samples_per_epoch = 0;  // of [1, num_samples]; 0: num_samples
  // Of [1, global batch]: the rows behind them have no sample. 0: the global batch.
  int64_t samples_per_step = 0;
  DataPosition begin = {};
  // How many samples the epoch of `begin` still has. -1: up to samples_per_epoch.
  int64_t left_in_epoch = -1;
  bool steps_end_with_epochs = false;
  std::function<int64_t(int64_t index)> length_of = nullptr;
  int64_t length_group = 0;  // >= 1 with `length_of`
  // Positions from here on have no sample: the last batches are shorter or empty. To draw the data
  // once, as evaluation does: num_samples.
  int64_t end_position = std::numeric_limits<int64_t>::max();
};

// Which micro-batch of a run.
struct BatchPlace {
  int64_t step = 0;         // counts from 0
  int64_t micro_batch = 0;  // of [0, micro_batches)
  int64_t rank = 0;         // among the data-parallel ranks
  int64_t world = 1;        // how many there are
};

class Sampler {
 public:
  // Throws Error for options out of their range.
  explicit Sampler(const SamplerOptions& options);

  // The samples of one micro-batch of one rank: batch_size indices of [0, num_samples), fewer only
  // where the positions reach end_position, or the rows samples_per_step. Throws Error for a place
  // out of its range.
  std::vector<Sample> Rows(const BatchPlace& place) const;

  // The sample at a position >= begin.samples of the line.
  int64_t SampleAt(int64_t position) const;

  // Where a run stands after so many steps >= begin.step.
  DataPosition After(int64_t step, int64_t world) const;
  // Whether a step >= begin.step draws the last sample of an epoch.
  bool EndsEpoch(int64_t step, int64_t world) const;
  // How many samples of the line lie before the end of `epochs` passes over the data; a part of a
  // pass is rounded up, to whole steps where they end with epochs.
  int64_t SamplesOf(double epochs, int64_t world) const;
  // The step, counted from the first, in which the last of the first `samples` of the line is
  // drawn; the step may be short of some.
  int64_t StepsFor(int64_t samples, int64_t world) const;
  int64_t GlobalBatch(int64_t world) const {
    return options_.batch_size * options_.micro_batches * world;
  }
  // The steps of a pass over the data.
  double StepsPerEpoch(int64_t world) const;
  // How many samples a step draws at most.
  int64_t StepSamples(int64_t world) const {
    return options_.samples_per_step > 0 ? options_.samples_per_step : GlobalBatch(world);
  }

  int64_t samples_per_epoch() const { return options_.samples_per_epoch; }
  const SamplerOptions& options() const { return options_; }

 private:
  // A place in an epoch's order.
  struct Place {
    int64_t epoch;
    int64_t index;
  };
  Place PlaceOf(int64_t position) const;
  // Where in the line a step >= begin.step begins, end_position aside.
  int64_t PositionOf(int64_t step, int64_t world) const;
  int64_t EpochSize(int64_t epoch) const;
  // The sample at a place, before groups are sorted.
  int64_t Drawn(const Place& place) const;
  // The group of neighbours that a place is in: where it begins, and its samples in order.
  struct Group {
    Place begin = {-1, 0};
    std::vector<int64_t> samples = {};
    bool Has(const Place& place) const {
      return place.epoch == begin.epoch && place.index >= begin.index &&
             place.index < begin.index + std::ssize(samples);
    }
    int64_t At(const Place& place) const {
      return samples[static_cast<size_t>(place.index - begin.index)];
    }
  };
  Group GroupOf(const Place& place) const;

  SamplerOptions options_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_SAMPLER_H_
