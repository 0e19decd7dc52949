// SPDX-License-Identifier: Apache-2.0
// Whole numbers near others, and division with a remainder.
//
//   Floor(x); Ceil(x); Round(x);                    // of 2.5: 2, 3, 2
//   Tensor row = FloorDivide(index, width);         // Python's index // width
//   Tensor column = index % width;                  // Remainder(index, width)
//
// Any dtype, on every device; two dtypes are promoted as elementwise.h says, and masks are computed
// with as int64. Tensors broadcast. Of integers a division by 0 throws Error (checked on the CPU).
// Composed of the functions of elementwise.h: several passes over memory.
#ifndef TESSERA_OPS_ELEMENTWISE_ROUNDING_H_
#define TESSERA_OPS_ELEMENTWISE_ROUNDING_H_

#include "core/tensor.h"

namespace tessera {

// The next whole number below, above, and the nearest one, of two equally near the even one; x
// itself where its dtype has no fractions. Gradients are zeros.
Tensor Floor(const Tensor& x);
Tensor Ceil(const Tensor& x);
Tensor Round(const Tensor& x);

// floor(a / b), so that it rounds towards minus infinity. Gradients are zeros.
Tensor FloorDivide(const Tensor& a, const Tensor& b);
Tensor FloorDivide(const Tensor& a, double b);
// a - b floor(a / b), with the sign of b. The gradient goes to a, and, times -floor(a / b), to b.
// Of floating dtypes both are computed in float64 from the exact remainder, as Python does: 1 //
// 0.1 is 9.
Tensor Remainder(const Tensor& a, const Tensor& b);
Tensor Remainder(const Tensor& a, double b);
inline Tensor operator%(const Tensor& a, const Tensor& b) { return Remainder(a, b); }
inline Tensor operator%(const Tensor& a, double b) { return Remainder(a, b); }

}  // namespace tessera

#endif  // TESSERA_OPS_ELEMENTWISE_ROUNDING_H_
