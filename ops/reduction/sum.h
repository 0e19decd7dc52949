// SPDX-License-Identifier: Apache-2.0
// Sums over dims, and broadcasting, their counterpart.
//
//   Tensor total = Sum(x);                  // [] (a scalar)
//   Tensor bias_grad_C = SumTo(grad_BTC, {C});
//
// Any dtype; sums of integers and masks are int64 (of a mask: how many are true). Sums run over
// fixed chunks in float32 and add chunks up in float64 (all in float64 for float64), so that the
// bits depend on the shape alone, not on the number of threads; the result is rounded to x's dtype
// once.
#ifndef TESSERA_OPS_REDUCTION_SUM_H_
#define TESSERA_OPS_REDUCTION_SUM_H_

#include <concepts>
#include <vector>

#include "core/tensor.h"

namespace tessera {

// Over `dims`, by default all; with `keep_dims` they stay with size 1.
Tensor Sum(const Tensor& x, const std::vector<int>& dims = {}, bool keep_dims = false);
// Over one dim: Sum(x, 1).
template <std::same_as<int> Dim>
Tensor Sum(const Tensor& x, Dim dim, bool keep_dim = false) {
  return Sum(x, std::vector<int>{dim}, keep_dim);
}

// Repeats sizes of 1 (and new leading dims) to `shape` with strides of 0.
Tensor BroadcastTo(const Tensor& x, const Shape& shape);
// Sums x down to `shape`, which broadcasts to x's: the gradient of BroadcastTo.
Tensor SumTo(const Tensor& x, const Shape& shape);

}  // namespace tessera

#endif  // TESSERA_OPS_REDUCTION_SUM_H_
