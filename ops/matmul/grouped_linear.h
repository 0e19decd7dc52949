// SPDX-License-Identifier: Apache-2.0
// Linear layers side by side, each applied to rows of its own: the experts of a mixture.
//
//   Tensor y_RN = GroupedLinear(x_RK, counts, weights, LinearLayout::kOutIn);
//
// Rows of x [R, in] lie by layer: the first counts[0] are those of weights[0], and so on. y has
// the bits of Linear on each layer's rows, and so have the gradients, those of weights apart from
// that of x as Linear's. Dtypes as Linear's. A layer without rows has a gradient of zeros.
// On the CPU all products are spread over the threads at once. Counts that are not x's, and weights
// that do not fit, throw Error.
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
