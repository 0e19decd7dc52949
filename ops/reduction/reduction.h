// SPDX-License-Identifier: Apache-2.0
// Reductions over dims. Sums, and broadcasting, their counterpart, are in ops/reduction/sum.h.
//
//   Tensor total = Sum(x);                       // [] (a scalar)
//   Tensor per_row = Mean(x_BTC, {-1}, true);    // [B, T, 1]
//   Tensor ids = ArgMax(logits_BV, -1);          // [B], int64
//
// Any floating dtype; the result has x's dtype (ArgMax, ArgMin: int64). Gradients flow through all
// but these. Empty `dims` means all of them. Dims out of range, and extremes of nothing, throw
// Error.
#ifndef TESSERA_OPS_REDUCTION_REDUCTION_H_
#define TESSERA_OPS_REDUCTION_REDUCTION_H_

#include <concepts>
#include <vector>

#include "core/tensor.h"
#include "ops/reduction/sum.h"

namespace tessera {

Tensor Mean(const Tensor& x, const std::vector<int>& dims = {}, bool keep_dims = false);
// Over one dim: Mean(x, 1).
template <std::same_as<int> Dim>
Tensor Mean(const Tensor& x, Dim dim, bool keep_dim = false) {
  return Mean(x, std::vector<int>{dim}, keep_dim);
}

// The mean square of the distance to the mean, with n - correction in the place of n: 1 has no bias
// (Bessel), 0 is the variance of these very numbers. Half precision is computed in float32 and
// rounded once. The standard deviation is its Sqrt. (torch.var)
struct VarOptions {
  double correction = 1;
  bool keep_dims = false;
};
Tensor Var(const Tensor& x, const std::vector<int>& dims = {}, const VarOptions& options = {});

// Along one dim. The gradient of Max and Min goes to the first extreme element. NaN wins.
Tensor Max(const Tensor& x, int dim, bool keep_dim = false);
Tensor Min(const Tensor& x, int dim, bool keep_dim = false);
// The index of the first largest, or smallest, element. NaN wins.
Tensor ArgMax(const Tensor& x, int dim, bool keep_dim = false);
Tensor ArgMin(const Tensor& x, int dim, bool keep_dim = false);

// log(sum(exp(x))) along one dim, without overflow; -inf for a slice of -inf.
Tensor LogSumExp(const Tensor& x, int dim, bool keep_dim = false);

}  // namespace tessera

#endif  // TESSERA_OPS_REDUCTION_REDUCTION_H_
