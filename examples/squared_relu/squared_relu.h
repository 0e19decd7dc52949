// SPDX-License-Identifier: Apache-2.0
// The square of the positive part, as Primer's feed-forward layers have it (So et al. 2021,
// "Primer: Searching for Efficient Transformers for Language Modeling").
//
//   Tensor y = SquaredRelu(x);     // max(x, 0)^2
//
// Any shape and strides, floating dtypes; the result is contiguous and of x's dtype, computed in
// float32 (float64 for float64). The gradient is 2 max(x, 0). Other dtypes throw Error.
#ifndef TESSERA_EXAMPLES_SQUARED_RELU_SQUARED_RELU_H_
#define TESSERA_EXAMPLES_SQUARED_RELU_SQUARED_RELU_H_

#include <tessera/core/tensor.h>

namespace tessera::examples {

Tensor SquaredRelu(const Tensor& x);

}  // namespace tessera::examples

#endif  // TESSERA_EXAMPLES_SQUARED_RELU_SQUARED_RELU_H_
