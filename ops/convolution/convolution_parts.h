// SPDX-License-Identifier: Apache-2.0
// A convolution and its two gradients off the tape: what Conv2d, Conv1d and ConvTranspose2d are
// made of. All arguments have one dtype; results are new and contiguous.
#ifndef TESSERA_OPS_CONVOLUTION_CONVOLUTION_PARTS_H_
#define TESSERA_OPS_CONVOLUTION_CONVOLUTION_PARTS_H_

#include "core/tensor.h"
#include "ops/convolution/convolution_kernel.h"

namespace tessera {

// `result` is the shape that the result is given; its elements are those of `shape`.
Tensor ConvForward(const ConvShape& shape, const Tensor& x, const Tensor& weight,
                   const Tensor& bias, const Shape& result);
// `bias`: of the inputs' channels, for a transposed convolution.
Tensor ConvInputGrad(const ConvShape& shape, const Tensor& dy, const Tensor& weight,
                     const Tensor& bias, const Shape& result);
// In `dtype`.
Tensor ConvWeightGrad(const ConvShape& shape, const Tensor& x, const Tensor& dy, DType dtype,
                      const Shape& result);

}  // namespace tessera

#endif  // TESSERA_OPS_CONVOLUTION_CONVOLUTION_PARTS_H_
