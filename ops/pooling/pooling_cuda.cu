// SPDX-License-Identifier: Apache-2.0
// Pooling on the GPU: a thread takes an element of what is written.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "ops/pooling/pooling_kernel.h"

namespace tessera::cuda {
namespace {

template <typename T>
__global__ void MaxPool(MaxPoolArgs args) {
  const int64_t out = args.h.out * args.w.out;
  for (int64_t at = GridThread(); at < args.planes * out; at += GridThreads()) {
    const T* x = static_cast<const T*>(args.x) + at / out * args.h.in * args.w.in;
    const int64_t top = at % out / args.w.out * args.h.stride - args.h.padding;
    const int64_t left = at % args.w.out * args.w.stride - args.w.padding;
    int64_t best = -1;
    for (int64_t i = 0; i < args.h.kernel; ++i) {
      const int64_t h = top + i * args.h.dilation;
      if (h < 0 || h >= args.h.in) continue;
      for (int64_t j = 0; j < args.w.kernel; ++j) {
        const int64_t w = left + j * args.w.dilation;
        if (w < 0 || w >= args.w.in) continue;
        const int64_t candidate = h * args.w.in + w;
        if (best < 0) {
          best = candidate;
          continue;
        }
        const auto value = ToWide(x[candidate]);
        const auto largest = ToWide(x[best]);
        if (value > largest || (value != value && largest == largest)) best = candidate;
      }
    }
    static_cast<T*>(args.y)[at] = x[best];
    args.from[at] = static_cast<int32_t>(best);
  }
}

// Windows of one dim that may hold element i: [first, end).
struct Windows {
  int64_t first;
  int64_t end;
};
__device__ __forceinline__ Windows WindowsOf(const PoolDim& dim, int64_t i) {
  const int64_t span = dim.dilation * (dim.kernel - 1);
  const int64_t before = i + dim.padding - span;
  return {before <= 0 ? 0 : (before + dim.stride - 1) / dim.stride,
          min((i + dim.padding) / dim.stride + 1, dim.out)};
}

// An element collects, in order, from the windows whose largest it is.
template <typename T>
__global__ void MaxPoolGrad(MaxPoolGradArgs args) {
  const int64_t in = args.h.in * args.w.in;
  const int64_t out = args.h.out * args.w.out;
  for (int64_t at = GridThread(); at < args.planes * in; at += GridThreads()) {
    const int64_t me = at % in;
    const Windows rows = WindowsOf(args.h, me / args.w.in);
    const Windows columns = WindowsOf(args.w, me % args.w.in);
    Wide<T> sum = 0;
    for (int64_t h = rows.first; h < rows.end; ++h) {
      for (int64_t w = columns.first; w < columns.end; ++w) {
        const int64_t window = at / in * out + h * args.w.out + w;
        if (args.from[window] == me) sum += ToWide(static_cast<const T*>(args.dy)[window]);
      }
    }
    static_cast<T*>(args.dx)[at] = FromWide<T>(sum);
  }
}

template <typename T>
__global__ void BlendPlanes(BlendArgs args) {
  using W = Wide<T>;
  const int64_t out = args.h.out * args.w.out;
  for (int64_t at = GridThread(); at < args.planes * out; at += GridThreads()) {
    const T* x = static_cast<const T*>(args.x) + at / out * args.h.in * args.w.in;
    const int64_t h = at % out / args.w.out;
    const int64_t w = at % args.w.out;
    const int64_t rows = args.h.first[h + 1] - args.h.first[h];
    const int64_t columns = args.w.first[w + 1] - args.w.first[w];
    W sum = 0;
    for (int64_t j = 0; j < columns; ++j) {
      W column = 0;
      for (int64_t i = 0; i < rows; ++i) {
        column += static_cast<W>(args.h.weights[args.h.first[h] + i]) *
                  ToWide(x[(args.h.begin[h] + i) * args.w.in + args.w.begin[w] + j]);
      }
      sum += static_cast<W>(args.w.weights[args.w.first[w] + j]) * column;
    }
    static_cast<T*>(args.y)[at] = FromWide<T>(sum);
  }
}

void MaxPoolCuda(const MaxPoolArgs& args) {
  DispatchCudaFloat(args.dtype, "max_pool", [&](auto zero) {
    Launch("max_pool", {GridFor(args.planes * args.h.out * args.w.out), kThreads},
           MaxPool<decltype(zero)>, args);
  });
}
void MaxPoolGradCuda(const MaxPoolGradArgs& args) {
  DispatchCudaFloat(args.dtype, "max_pool gradient", [&](auto zero) {
    Launch("max_pool gradient", {GridFor(args.planes * args.h.in * args.w.in), kThreads},
           MaxPoolGrad<decltype(zero)>, args);
  });
}
void BlendCuda(const BlendArgs& args) {
  DispatchCudaFloat(args.dtype, "blend of planes", [&](auto zero) {
    Launch("blend of planes", {GridFor(args.planes * args.h.out * args.w.out), kThreads},
           BlendPlanes<decltype(zero)>, args);
  });
}

TESSERA_REGISTER_KERNEL(max_pool_kernel, DeviceType::kCuda, MaxPoolCuda);
TESSERA_REGISTER_KERNEL(max_pool_grad_kernel, DeviceType::kCuda, MaxPoolGradCuda);
TESSERA_REGISTER_KERNEL(blend_kernel, DeviceType::kCuda, BlendCuda);

}  // namespace
}  // namespace tessera::cuda
