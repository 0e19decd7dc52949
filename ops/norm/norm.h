// SPDX-License-Identifier: Apache-2.0
// Normalisation over the last dim.
//
//   Tensor y = LayerNorm(x_BTC, weight_C, bias_C, 1e-5);
//   ResidualNorm r = LayerNormResidual(x_BTC, branch_BTC, weight_C, bias_C, 1e-5);
//   // r.sum = x + branch continues along the residual stream, r.normed into the next layer
//
// LayerNorm: (x - mean) / sqrt(var + eps) * weight + bias, with the biased variance (Ba, Kiros and
// Hinton 2016). RmsNorm: x / sqrt(mean(x^2) + eps) * (weight + weight_offset) (Zhang and Sennrich
// 2019); an offset of 1 is Gemma's, whose weights are near 0. Floating
// dtypes, all alike; statistics in float32 (float64 for float64). weight [C] and bias [C] may be
// undefined. Gradients flow to every argument; those of weight and bias are summed over rows in
// fixed chunks, independently of threads; with a tree, of x [B, T, ..., C], over its tokens and its
// ranks. The fused forms equal the sum followed by the norm, and
// save its memory traffic, that of the gradients included.
#ifndef TESSERA_OPS_NORM_NORM_H_
#define TESSERA_OPS_NORM_NORM_H_

#include <optional>

#include "core/tensor.h"
#include "ops/collective/sum_tree.h"

namespace tessera {

Tensor LayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                 const std::optional<TokenTree>& tree = std::nullopt);
Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps, double weight_offset = 0,
               const std::optional<TokenTree>& tree = std::nullopt);

// x + residual, which the block continues with, and its norm. Without a residual (undefined) the
// sum is x, in x's memory: whoever continues with it rather than with x has the gradient that comes
// back along the stream added as that of the norm is written.
struct ResidualNorm {
  Tensor sum;
  Tensor normed;
};
ResidualNorm LayerNormResidual(const Tensor& x, const Tensor& residual, const Tensor& weight,
                               const Tensor& bias, double eps,
                               const std::optional<TokenTree>& tree = std::nullopt);
ResidualNorm RmsNormResidual(const Tensor& x, const Tensor& residual, const Tensor& weight,
                             double eps, double weight_offset = 0,
                             const std::optional<TokenTree>& tree = std::nullopt);

}  // namespace tessera

#endif  // TESSERA_OPS_NORM_NORM_H_
