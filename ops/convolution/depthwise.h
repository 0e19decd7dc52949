// SPDX-License-Identifier: Apache-2.0
// Convolutions whose outputs see one channel each (groups == channels): there is no product of
// matrices in them, so that each channel's picture is padded into the cache and passed over.
#ifndef TESSERA_OPS_CONVOLUTION_DEPTHWISE_H_
#define TESSERA_OPS_CONVOLUTION_DEPTHWISE_H_

#include "ops/convolution/convolution_kernel.h"
#include "ops/convolution/tap_sum.h"

namespace tessera {

// One row and one channel per group. An element is bias + the chain over taps in order.
void RunDepthwise(const TapSum& sum);

// The slices are ranges of pictures.
void DepthwiseWeightGrad(const ConvWeightGradArgs& args);

}  // namespace tessera

#endif  // TESSERA_OPS_CONVOLUTION_DEPTHWISE_H_
