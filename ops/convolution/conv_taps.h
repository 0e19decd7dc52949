// SPDX-License-Identifier: Apache-2.0
// The taps of a convolution, and of the gradient of its input.
#ifndef TESSERA_OPS_CONVOLUTION_CONV_TAPS_H_
#define TESSERA_OPS_CONVOLUTION_CONV_TAPS_H_

#include <vector>

#include "ops/convolution/convolution_kernel.h"
#include "ops/convolution/gather.h"

namespace tessera {

inline TapGrid ForwardGrid(const ConvShape& s) {
  return {s.h.out,
          s.w.out,
          s.h.in,
          s.w.in,
          s.h.stride,
          s.w.stride,
          s.groups * s.in_channels * s.in_pixels()};
}

// The taps of the forward pass, in the order of the kernel's elements.
inline std::vector<Tap> ForwardTaps(const ConvShape& s) {
  std::vector<Tap> taps;
  for (int64_t i = 0; i < s.h.kernel; ++i) {
    for (int64_t j = 0; j < s.w.kernel; ++j) {
      taps.push_back(
          {i * s.h.dilation - s.h.padding, j * s.w.dilation - s.w.padding, i * s.w.kernel + j});
    }
  }
  return taps;
}

// Of one dim: elements phase, phase + stride, ... of x are what outputs meet through the kernel's
// elements i; element number t meets output t + offset.
struct InputPhase {
  struct Meeting {
    int64_t i;
    int64_t offset;
  };
  int64_t count;  // of elements
  std::vector<Meeting> meetings;
};

// The inputs p with p % stride == phase along a dim, and the taps that meet them.
inline InputPhase InputPhaseOf(const ConvDim& dim, int64_t phase) {
  InputPhase result{phase < dim.in ? (dim.in - phase + dim.stride - 1) / dim.stride : 0, {}};
  for (int64_t i = 0; i < dim.kernel; ++i) {
    // x at p is met by output o where p + padding - i * dilation = o * stride.
    const int64_t distance = phase + dim.padding - i * dim.dilation;
    if (distance % dim.stride == 0) result.meetings.push_back({i, distance / dim.stride});
  }
  return result;
}

}  // namespace tessera

#endif  // TESSERA_OPS_CONVOLUTION_CONV_TAPS_H_
