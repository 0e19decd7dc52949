// SPDX-License-Identifier: Apache-2.0
// Linear layers side by side, each applied to rows of its own: the experts of a mixture.
//
//   Tensor y_RN = GroupedLinear(x_RK, counts, weights, LinearLayout::kOutIn);
//
// Rows of x [R, in] are sorted by layer: the first counts[0] rows belong to weights[0], and so on.
// The result and the gradients have the bits of Linear (ops/matmul/matmul.h) on each layer's rows.
// Dtypes are Linear's, and gradients of weights can be queued as Linear's can. The weight of a
// layer without rows gets a gradient of zeros. On the CPU all products share the threads. Counts
// that do not add up to R, and weights that do not fit, throw Error.
#ifndef TESSERA_OPS_MATMUL_GROUPED_LINEAR_H_
#define TESSERA_OPS_MATMUL_GROUPED_LINEAR_H_

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "ops/matmul/matmul.h"

namespace tessera {

Tensor GroupedLinear(const Tensor& x, const std::vector<int64_t>& counts,
                     const std::vector<Tensor>& weights, LinearLayout layout);

}  // namespace tessera

#endif  // TESSERA_OPS_MATMUL_GROUPED_LINEAR_H_
