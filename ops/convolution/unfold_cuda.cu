// SPDX-License-Identifier: Apache-2.0
// Unfolding pictures into columns and back on the GPU: a thread takes an element of what is
// written.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "ops/convolution/convolution_kernel.h"

namespace tessera::cuda {
namespace {

template <typename T>
__global__ void Unfold(ConvShape s, const T* x, int64_t image_stride, int64_t row_stride,
                       T* columns) {
  const int64_t pixels = s.h.out * s.w.out;
  const int64_t taps = s.h.kernel * s.w.kernel;
  const int64_t channels = s.groups * s.in_channels;
  for (int64_t at = GridThread(); at < s.batch * channels * taps * pixels; at += GridThreads()) {
    const int64_t pixel = at % pixels;
    const int64_t row = at / pixels % (channels * taps);
    const int64_t n = at / pixels / (channels * taps);
    const int64_t tap = row % taps;
    const int64_t h = pixel / s.w.out * s.h.stride + tap / s.w.kernel * s.h.dilation - s.h.padding;
    const int64_t w = pixel % s.w.out * s.w.stride + tap % s.w.kernel * s.w.dilation - s.w.padding;
    const bool inside = h >= 0 && h < s.h.in && w >= 0 && w < s.w.in;
    columns[n * image_stride + row * row_stride + pixel] =
        inside ? x[((n * channels + row / taps) * s.h.in + h) * s.w.in + w]
               : FromWide<T>(Wide<T>(0));
  }
}

// An element of x collects, tap by tap in order, what the columns made of it.
template <typename T>
__global__ void Fold(ConvShape s, const T* columns, int64_t image_stride, int64_t row_stride,
                     T* dx) {
  const int64_t plane = s.h.in * s.w.in;
  const int64_t channels = s.groups * s.in_channels;
  for (int64_t at = GridThread(); at < s.batch * channels * plane; at += GridThreads()) {
    const int64_t n = at / plane / channels;
    const int64_t channel = at / plane % channels;
    const int64_t h = at % plane / s.w.in;
    const int64_t w = at % s.w.in;
    Wide<T> sum = 0;
    for (int64_t i = 0; i < s.h.kernel; ++i) {
      const int64_t from_h = h + s.h.padding - i * s.h.dilation;
      if (from_h < 0 || from_h % s.h.stride != 0 || from_h / s.h.stride >= s.h.out) continue;
      for (int64_t j = 0; j < s.w.kernel; ++j) {
        const int64_t from_w = w + s.w.padding - j * s.w.dilation;
        if (from_w < 0 || from_w % s.w.stride != 0 || from_w / s.w.stride >= s.w.out) continue;
        const int64_t row = (channel * s.h.kernel + i) * s.w.kernel + j;
        sum += ToWide(columns[n * image_stride + row * row_stride + from_h / s.h.stride * s.w.out +
                              from_w / s.w.stride]);
      }
    }
    dx[at] = FromWide<T>(sum);
  }
}

void UnfoldCuda(const UnfoldArgs& args) {
  const ConvShape& s = args.shape;
  const int64_t elements = s.batch * s.groups * s.in_channels * s.taps() * s.out_pixels();
  DispatchCudaFloat(args.dtype, "unfold", [&](auto zero) {
    using T = decltype(zero);
    Launch("unfold", {GridFor(elements), kThreads}, Unfold<T>, s, static_cast<const T*>(args.x),
           args.image_stride, args.row_stride, static_cast<T*>(args.columns));
  });
}

void FoldCuda(const FoldArgs& args) {
  const ConvShape& s = args.shape;
  const int64_t elements = s.batch * s.groups * s.in_channels * s.in_pixels();
  DispatchCudaFloat(args.dtype, "fold", [&](auto zero) {
    using T = decltype(zero);
    Launch("fold", {GridFor(elements), kThreads}, Fold<T>, s, static_cast<const T*>(args.columns),
           args.image_stride, args.row_stride, static_cast<T*>(args.dx));
  });
}

TESSERA_REGISTER_KERNEL(unfold_kernel, DeviceType::kCuda, UnfoldCuda);
TESSERA_REGISTER_KERNEL(fold_kernel, DeviceType::kCuda, FoldCuda);

}  // namespace
}  // namespace tessera::cuda
