// SPDX-License-Identifier: Apache-2.0
// One channel of a convolution whose outputs see one channel each, compiled once per instruction
// set. Raw pointers only; the plane is padded, so that every element that is read is there.
#ifndef TESSERA_OPS_CONVOLUTION_DEPTHWISE_ROWS_H_
#define TESSERA_OPS_CONVOLUTION_DEPTHWISE_ROWS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"

namespace tessera {

template <typename E>
struct DepthwisePlane {
  const E* plane;
  int64_t row_stride;
  int64_t step_h;
  int64_t step_w;
  int64_t out_h;
  int64_t out_w;
  const int64_t* taps;  // element (h, w) and tap t meet at h * step_h * row_stride + w * step_w
  int64_t tap_count;    // + taps[t]
};

// out[h, w] = bias + sum of weight[t] plane[h, w, t], "=".
using DepthwiseSumFn = void(const DepthwisePlane<float>& p, const float* weight, float bias,
                            float* out);
// sums[t] += sum of dy[h, w] plane[h, w, t].
using DepthwiseDotsFn = void(const DepthwisePlane<float>& p, const float* dy, float* sums);

TESSERA_DECLARE_FOR_EVERY_ISA(DepthwiseSumFn DepthwiseSum; DepthwiseDotsFn DepthwiseDots;)

}  // namespace tessera

#endif  // TESSERA_OPS_CONVOLUTION_DEPTHWISE_ROWS_H_
