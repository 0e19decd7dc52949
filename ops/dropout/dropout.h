// SPDX-License-Identifier: Apache-2.0
// Dropout with random bits that are a function of the element.
//
//   Tensor y = Dropout(x_BTC, {.p = 0.1, .key = NoiseKey(seed, path, step, micro_batch)});
//
// y = x / (1 - p) where UniformFloat(key, i) >= p, else 0, with i the element's row-major index in
// the *unsharded* tensor: x may be the box of a larger tensor that begins at `begin`. No mask is
// kept; the backward pass makes the same bits again, and so do recomputation, a resumed run and
// every other layout. Floating dtypes (float64 included), 0 <= p < 1; p = 0 returns x.
#ifndef TESSERA_OPS_DROPOUT_DROPOUT_H_
#define TESSERA_OPS_DROPOUT_DROPOUT_H_

#include "core/random.h"
#include "core/tensor.h"

namespace tessera {

struct DropoutOptions {
  double p = 0.0;
  RandomKey key = {};
  Shape global_shape = {};  // of the unsharded tensor; empty: x's own
  Shape begin = {};         // of x in it; empty: zeros
};

Tensor Dropout(const Tensor& x, const DropoutOptions& options);

}  // namespace tessera

#endif  // TESSERA_OPS_DROPOUT_DROPOUT_H_
