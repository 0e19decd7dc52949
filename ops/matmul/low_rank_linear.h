// SPDX-License-Identifier: Apache-2.0
// A linear layer with a low-rank term beside its weight (Hu et al. 2021, "LoRA: Low-Rank Adaptation
// of Large Language Models") in as few passes over memory as the device allows:
//
//   Tensor y_BTO = LowRankLinear(x_BTI, weight, bias, LinearLayout::kOutIn,
//                                {.a = a_RI, .b = b_OR, .scale = alpha / rank});
//
// Equal to Linear(x, weight, bias) + Linear(scale Linear(term.x, a), b) but for rounding: the
// second product is added where the first one stands, and so is the gradient that reaches x through
// the term. Shapes, dtypes and errors are Linear's (ops/matmul/matmul.h); gradients to all tensors.
#ifndef TESSERA_OPS_MATMUL_LOW_RANK_LINEAR_H_
#define TESSERA_OPS_MATMUL_LOW_RANK_LINEAR_H_

#include "core/tensor.h"
#include "ops/matmul/matmul.h"

namespace tessera {

// What is added: scale (x a^T) b^T.
struct LowRank {
  Tensor x = {};  // [..., in], of the shape of the layer's input; undefined: it is that
  Tensor a;       // [rank, in]
  Tensor b;       // [out, rank]
  double scale = 1.0;
  // Of the weight's inputs, which are a's, and of its outputs, which are b's.
  LinearTrees trees = {};
};

// x [..., in] to [..., out], plus bias [out] where defined.
Tensor LowRankLinear(const Tensor& x, const Tensor& weight, const Tensor& bias, LinearLayout layout,
                     const LowRank& term);

}  // namespace tessera

#endif  // TESSERA_OPS_MATMUL_LOW_RANK_LINEAR_H_
