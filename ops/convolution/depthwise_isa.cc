// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/simd.h"
#include "ops/convolution/depthwise_rows.h"
#include "ops/convolution/stepped_load_simd.h"

namespace tessera::TESSERA_ISA {

void DepthwiseSum(const DepthwisePlane<float>& p, const float* weight, float bias, float* out) {
  for (int64_t h = 0; h < p.out_h; ++h) {
    const float* row = p.plane + h * p.step_h * p.row_stride;
    for (int64_t w = 0; w < p.out_w; w += kLanes) {
      const int64_t lanes = p.out_w - w;
      VecF sum = Set(bias);
      for (int64_t t = 0; t < p.tap_count; ++t) {
        const float* at = row + w * p.step_w + p.taps[t];
        sum = Fma(Set(weight[t]), LoadStepped(at, p.step_w, lanes), sum);
      }
      StoreN(out + h * p.out_w + w, sum, lanes);
    }
  }
}

void DepthwiseDots(const DepthwisePlane<float>& p, const float* dy, float* sums) {
  for (int64_t t = 0; t < p.tap_count; ++t) {
    VecF sum = Zero();
    for (int64_t h = 0; h < p.out_h; ++h) {
      const float* row = p.plane + h * p.step_h * p.row_stride + p.taps[t];
      for (int64_t w = 0; w < p.out_w; w += kLanes) {
        const int64_t lanes = p.out_w - w;
        sum = Fma(LoadN(dy + h * p.out_w + w, lanes),
                  LoadStepped(row + w * p.step_w, p.step_w, lanes), sum);
      }
    }
    sums[t] += ReduceAdd(sum);
  }
}

}  // namespace tessera::TESSERA_ISA
