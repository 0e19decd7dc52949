// SPDX-License-Identifier: Apache-2.0
// Which samples make up a batch: a function of the step, not a state.
//
//   Sampler sampler({.num_samples = train->size(), .batch_size = 8, .micro_batches = 4});
//   std::vector<Sample> rows =
//       sampler.Rows({.step = 120, .micro_batch = 2, .rank = 1, .world = 4});
//
// All samples ever drawn stand in one line. The row `row` of a batch has the position
//   step * global_batch + (rank * micro_batches + micro_batch) * batch_size + row,
//   global_batch = world * micro_batches * batch_size,
// so a step takes the same set of samples on any world size with the same global batch, any rank
// can tell any other's share, and a run resumes by starting at a later step. A rank's micro-batches
// are neighbours: their gradients are summed before they travel (dist/store). Epochs run on without
// a break: position p is number p % n of epoch p / n, n = samples_per_epoch, and a batch may hold
// the end of one epoch and the beginning of the next, unless n is a multiple of the global batch
// (`drop_last`). Within an epoch the order is the KeyedPermutation of (seed, epoch) over all
// samples, or 0, 1, 2, ... without shuffling; an epoch draws the first n of it. With `length_of`,
// each `length_group` neighbours of that order are sorted by length, the longest first, so that
// batches have samples of like lengths.
#ifndef TESSERA_DATA_DATASET_SAMPLER_H_
#define TESSERA_DATA_DATASET_SAMPLER_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "data/dataset/dataset.h"

namespace tessera::data {

struct SamplerOptions {
  int64_t num_samples = 0;    // >= 1
  int64_t batch_size = 1;     // rows of one micro-batch on one rank
  int64_t micro_batches = 1;  // of one optimizer step
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t samples_per_epoch = 0;  // of [1, num_samples]; 0: num_samples
  std::function<int64_t(int64_t index)> length_of = nullptr;
  int64_t length_group = 0;  // >= 1 with `length_of`
  // Positions from here on have no sample: the last batches are shorter or empty. To go through the
  // data once, as evaluation does: num_samples.
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
  // where the positions reach end_position. Throws Error for a place out of its range.
  std::vector<Sample> Rows(const BatchPlace& place) const;

  // The sample at a position >= 0 of the line.
  int64_t SampleAt(int64_t position) const;

  // Steps until all positions below `positions` are used; the last may be short of some.
  int64_t StepsFor(int64_t positions, int64_t world) const;
  int64_t GlobalBatch(int64_t world) const {
    return options_.batch_size * options_.micro_batches * world;
  }

  int64_t samples_per_epoch() const { return options_.samples_per_epoch; }
  const SamplerOptions& options() const { return options_; }

 private:
  // Of [0, samples_per_epoch), before groups are sorted.
  int64_t Drawn(int64_t epoch, int64_t index) const;
  // The group of positions that one of them is in: where it begins, and its samples in order.
  struct Group {
    int64_t begin;
    std::vector<int64_t> samples;
  };
  Group GroupAt(int64_t position) const;

  SamplerOptions options_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_SAMPLER_H_
