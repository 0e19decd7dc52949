// SPDX-License-Identifier: Apache-2.0
// Random whole numbers.
//
//   const RandomKey key = NoiseKey(seed, path, step, micro_batch);        // core/random.h
//   Tensor ids_BT = RandInt(0, vocabulary, {B, T}, key);
//   Tensor next_B1 = Multinomial(Softmax(logits_BV, -1), 1, key);
//
// Results are int64, without gradients. As of Rand (ops/random/random.h), a number is a function of
// the key and its place, and another key gives others.
#ifndef TESSERA_OPS_SAMPLING_SAMPLING_H_
#define TESSERA_OPS_SAMPLING_SAMPLING_H_

#include <cstdint>

#include "core/random.h"
#include "core/tensor.h"

namespace tessera {

// Uniform in [low, high), of at most 2^48 numbers; other ranges throw Error.
Tensor RandInt(int64_t low, int64_t high, const Shape& shape, const RandomKey& key,
               Device device = Device::Cpu());

// `samples` indices along the last dim of weights [..., V], each with the share that its weight has
// in the row's sum: [..., samples]. Without replacement an index comes once, and the order is that
// in which they were drawn. Weights are floating; negative ones and NaN, rows of zeros, and rows
// with fewer positive weights than samples without replacement throw Error (checked on the CPU).
//
// The weights race: the index whose weight / E is largest wins, E exponential (Efraimidis and
// Spirakis 2006). With replacement that takes samples * V numbers for a row.
struct MultinomialOptions {
  bool replacement = false;
};
Tensor Multinomial(const Tensor& weights, int64_t samples, const RandomKey& key,
                   const MultinomialOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_OPS_SAMPLING_SAMPLING_H_
