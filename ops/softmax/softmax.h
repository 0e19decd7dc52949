// SPDX-License-Identifier: Apache-2.0
// Softmax and its logarithm along one dim.
//
//   Tensor p = Softmax(scores, -1);
//   Tensor logp = LogSoftmax(logits_BTV, -1);
//
// Floating dtypes; computed in float32 (float64 for float64) with the maximum taken out first, so
// nothing overflows. A slice that is -inf throughout gives NaN, as in PyTorch. Gradients flow to x.
// An empty dim gives an empty result; a dim out of range throws Error.
#ifndef TESSERA_OPS_SOFTMAX_SOFTMAX_H_
#define TESSERA_OPS_SOFTMAX_SOFTMAX_H_

#include "core/tensor.h"

namespace tessera {

Tensor Softmax(const Tensor& x, int dim);
Tensor LogSoftmax(const Tensor& x, int dim);

}  // namespace tessera

#endif  // TESSERA_OPS_SOFTMAX_SOFTMAX_H_
