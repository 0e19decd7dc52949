// SPDX-License-Identifier: Apache-2.0
// The cross-entropy of a linear layer's outputs, some rows at a time, so that the logits are never
// there as a whole: with V = 50257 they are by far the largest tensor of a language model.
//
//   Tensor loss = LinearCrossEntropy(h_NC, weight_VC, targets_N, {}, /*chunk_rows=*/8192);
//
// Equal to CrossEntropy(Linear(h, weight), targets, options) but for the order of sums. A chunk's
// logits are made, turned into their gradient in place, and multiplied into the gradients of h and
// of the weight at once, in the forward pass; the backward pass scales these by the gradient of the
// loss. So nothing is computed twice, and what is kept is as large as h and the weight.
//
// h [..., C] and weight [V, C] of one floating dtype (float32 weights under autocast), targets
// [...] int64. `options` as in ops/cross_entropy/cross_entropy.h, with kSum or kMean, a whole
// vocabulary and no class weights; anything else throws Error, and so do shapes that do not fit.
// The gradients pass through h's dtype before a loss scale reaches them: float16 is better served
// by the logits.
#ifndef TESSERA_OPS_CROSS_ENTROPY_LINEAR_CROSS_ENTROPY_H_
#define TESSERA_OPS_CROSS_ENTROPY_LINEAR_CROSS_ENTROPY_H_

#include "ops/cross_entropy/cross_entropy.h"

namespace tessera {

Tensor LinearCrossEntropy(const Tensor& h, const Tensor& weight, const Tensor& targets,
                          const CrossEntropyOptions& options, int64_t chunk_rows);

}  // namespace tessera

#endif  // TESSERA_OPS_CROSS_ENTROPY_LINEAR_CROSS_ENTROPY_H_
