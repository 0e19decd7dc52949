// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/convolution/conv_taps.h"
#include "ops/convolution/convolution_kernel.h"
#include "ops/convolution/tap_sum.h"

namespace tessera {
namespace {

void ForwardCpu(const ConvArgs& args) {
  const ConvShape& s = args.shape;
  TapSum sum{};
  sum.dtype = args.dtype;
  sum.grid = ForwardGrid(s);
  sum.taps = ForwardTaps(s);
  sum.batch = s.batch;
  sum.groups = s.groups;
  sum.rows = s.out_channels;
  sum.channels = s.in_channels;
  sum.in = args.x;
  sum.weight = args.weight;
  sum.weight_channel = s.taps();
  sum.weight_row = s.in_channels * sum.weight_channel;
  sum.weight_group = s.out_channels * sum.weight_row;
  sum.bias = args.bias;
  sum.out = args.y;
  sum.out_row = s.out_pixels();
  sum.out_image = s.groups * s.out_channels * sum.out_row;
  sum.out_h = s.w.out;
  sum.out_w = 1;
  RunTapSum(sum);
}

// Elements of x that are `stride` apart are met by the same elements of the kernel: each such
// phase is a sum over taps of its own, without a product by zero.
void InputGradCpu(const ConvInputGradArgs& args) {
  const ConvShape& s = args.shape;
  TapSum sum{};
  sum.dtype = args.dtype;
  sum.batch = s.batch;
  sum.groups = s.groups;
  sum.rows = s.in_channels;
  sum.channels = s.out_channels;
  sum.in = args.dy;
  sum.weight = args.weight;
  sum.weight_row = s.taps();
  sum.weight_channel = s.in_channels * s.taps();
  sum.weight_group = s.out_channels * sum.weight_channel;
  sum.bias = args.bias;
  sum.out = args.dx;
  sum.out_row = s.in_pixels();
  sum.out_image = s.groups * s.in_channels * sum.out_row;
  sum.out_h = s.h.stride * s.w.in;
  sum.out_w = s.w.stride;
  for (int64_t ph = 0; ph < std::min(s.h.stride, s.h.in); ++ph) {
    const InputPhase h = InputPhaseOf(s.h, ph);
    for (int64_t pw = 0; pw < std::min(s.w.stride, s.w.in); ++pw) {
      const InputPhase w = InputPhaseOf(s.w, pw);
      if (h.count == 0 || w.count == 0) continue;
      sum.grid = {
          h.count, w.count, s.h.out, s.w.out, 1, 1, s.groups * s.out_channels * s.out_pixels()};
      sum.taps.clear();
      for (const auto& i : h.meetings) {
        for (const auto& j : w.meetings) {
          sum.taps.push_back({i.offset, j.offset, i.i * s.w.kernel + j.i});
        }
      }
      sum.out_begin = ph * s.w.in + pw;
      RunTapSum(sum);
    }
  }
}

TESSERA_REGISTER_KERNEL(conv_forward, DeviceType::kCpu, ForwardCpu);
TESSERA_REGISTER_KERNEL(conv_input_grad, DeviceType::kCpu, InputGradCpu);

}  // namespace
}  // namespace tessera
