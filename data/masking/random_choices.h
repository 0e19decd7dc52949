// SPDX-License-Identifier: Apache-2.0
// Choices made at random, as functions of a key: what the masking objectives share.
//
//   RandomChoices random(RandomKey::FromSeed(seed).With("masked_lm").With(position));
//   if (random.Chance(0.15)) ...
//   std::vector<int64_t> lengths = random.Segments(/*items=*/19, /*segments=*/6);
#ifndef TESSERA_DATA_MASKING_RANDOM_CHOICES_H_
#define TESSERA_DATA_MASKING_RANDOM_CHOICES_H_

#include <cstdint>
#include <vector>

#include "core/random.h"

namespace tessera::data {

// Numbers of the key's stream, one after the other.
class RandomChoices {
 public:
  explicit RandomChoices(const RandomKey& key) : key_(key) {}

  double Uniform() { return UniformDouble(key_, next_++); }  // in [0, 1)
  bool Chance(double probability) { return Uniform() < probability; }
  // In [0, n); n >= 1.
  int64_t Below(int64_t n);
  // Of the Poisson distribution (Knuth's method: `mean` is small).
  int64_t Poisson(double mean);
  void Shuffle(std::vector<int64_t>* values);
  // Lengths >= 1 of `segments` parts whose sum is `items`, every way to cut being as likely
  // (1 <= segments <= items).
  std::vector<int64_t> Segments(int64_t items, int64_t segments);

 private:
  const RandomKey key_;
  uint64_t next_ = 0;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_MASKING_RANDOM_CHOICES_H_
