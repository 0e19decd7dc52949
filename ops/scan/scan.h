// SPDX-License-Identifier: Apache-2.0
// Running sums along a dim.
//
//   Tensor ends = CumSum(lengths_N, 0);            // {3, 1, 2} gives {3, 4, 6}
//
// Of floating dtypes sums run in float64 and are rounded to x's dtype element by element, in an
// order that the shape alone decides. Of whole numbers and masks the sums are int64, without
// gradients. A dim out of range throws Error.
#ifndef TESSERA_OPS_SCAN_SCAN_H_
#define TESSERA_OPS_SCAN_SCAN_H_

#include "core/tensor.h"

namespace tessera {

// y[.., i, ..] = x[.., 0, ..] + ... + x[.., i, ..].
Tensor CumSum(const Tensor& x, int dim);

}  // namespace tessera

#endif  // TESSERA_OPS_SCAN_SCAN_H_
