// SPDX-License-Identifier: Apache-2.0
// Convolutions as products of matrices by way of an unfolded copy of x, some pictures at a time:
// for devices whose products come from a library.
#ifndef TESSERA_OPS_CONVOLUTION_UNFOLDED_H_
#define TESSERA_OPS_CONVOLUTION_UNFOLDED_H_

#include "core/tensor.h"
#include "ops/convolution/convolution_kernel.h"

namespace tessera {

// Contiguous arguments as convolution_parts.h has them; at least one picture.
Tensor UnfoldedForward(const ConvShape& shape, const Tensor& x, const Tensor& weight);
Tensor UnfoldedInputGrad(const ConvShape& shape, const Tensor& dy, const Tensor& weight);
// In AccumulateDType.
Tensor UnfoldedWeightGrad(const ConvShape& shape, const Tensor& x, const Tensor& dy);

}  // namespace tessera

#endif  // TESSERA_OPS_CONVOLUTION_UNFOLDED_H_
