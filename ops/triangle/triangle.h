// SPDX-License-Identifier: Apache-2.0
// The lower and the upper triangle of matrices.
//
//   Tensor causal_TT = Tril(Full({T, T}, 1, DType::kBool));     // true where row >= column
//   Tensor strict = Triu(x_BNN, /*diagonal=*/1);                // without the diagonal
//
// x [..., rows, columns], any dtype and device; what lies outside of the triangle is zero, and gets
// no gradient. Fewer than two dims throw Error. (torch.tril, torch.triu)
#ifndef TESSERA_OPS_TRIANGLE_TRIANGLE_H_
#define TESSERA_OPS_TRIANGLE_TRIANGLE_H_

#include <cstdint>

#include "core/tensor.h"

namespace tessera {

// Elements on the diagonal and below: column <= row + diagonal.
Tensor Tril(const Tensor& x, int64_t diagonal = 0);
// Elements on the diagonal and above: column >= row + diagonal.
Tensor Triu(const Tensor& x, int64_t diagonal = 0);

}  // namespace tessera

#endif  // TESSERA_OPS_TRIANGLE_TRIANGLE_H_
