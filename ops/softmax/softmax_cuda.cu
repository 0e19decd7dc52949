// SPDX-License-Identifier: Apache-2.0
// Softmax and log-softmax by rows: a block takes a row, three passes that the caches serve.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/math.cuh"
#include "core/cuda/reduce.cuh"
#include "core/formula.h"
#include "ops/softmax/softmax_kernel.h"

namespace tessera::cuda {
namespace {

// Calls f(i, group) for this thread's groups of x[0, n).
template <int kGroup, typename T, typename F>
__device__ __forceinline__ void EachGroup(const T* x, int64_t n, F f) {
  for (int64_t i = int64_t{threadIdx.x} * kGroup; i < n; i += int64_t{blockDim.x} * kGroup) {
    f(i, LoadVec<kGroup>(x + i));
  }
}

// A NaN shows in the sum.
template <typename T, int kGroup>
__global__ void ForwardKernel(bool log, int64_t rows, int64_t n, const T* x_RN, T* y_RN) {
  using W = Wide<T>;
  using Group = Vec<T, kGroup>;
  const W lowest = static_cast<W>(-INFINITY);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* x = x_RN + row * n;
    T* y = y_RN + row * n;
    W max = lowest;
    EachGroup<kGroup>(x, n, [&](int64_t, const Group& v) {
#pragma unroll
      for (int k = 0; k < kGroup; ++k) max = LargerOf(max, ToWide(v.v[k]));
    });
    max = BlockReduce(max, MaxOp(), lowest);
    W sum = 0;
    EachGroup<kGroup>(x, n, [&](int64_t, const Group& v) {
#pragma unroll
      for (int k = 0; k < kGroup; ++k) sum += FastExpOf(ToWide(v.v[k]) - max);
    });
    sum = BlockReduce(sum, SumOp(), W(0));
    const W log_sum = formula::Log(sum);
    const W scale = W(1) / sum;
    EachGroup<kGroup>(x, n, [&](int64_t i, Group v) {
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        const W shifted = ToWide(v.v[k]) - max;
        v.v[k] = FromWide<T>(log ? shifted - log_sum : FastExpOf(shifted) * scale);
      }
      StoreVec<kGroup>(y + i, v);
    });
  }
}

// dx = y (dy - sum(dy y)), and dy - exp(y) sum(dy) for the logarithm.
template <typename T, int kGroup>
__global__ void BackwardKernel(bool log, int64_t rows, int64_t n, const T* y_RN, const T* dy_RN,
                               T* dx_RN) {
  using W = Wide<T>;
  using Group = Vec<T, kGroup>;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* y = y_RN + row * n;
    const T* dy = dy_RN + row * n;
    T* dx = dx_RN + row * n;
    W sum = 0;
    EachGroup<kGroup>(dy, n, [&](int64_t i, const Group& g) {
      Group v;
      if (!log) v = LoadVec<kGroup>(y + i);
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        sum += log ? ToWide(g.v[k]) : ToWide(g.v[k]) * ToWide(v.v[k]);
      }
    });
    sum = BlockReduce(sum, SumOp(), W(0));
    EachGroup<kGroup>(dy, n, [&](int64_t i, Group g) {
      const Group v = LoadVec<kGroup>(y + i);
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        const W wide_g = ToWide(g.v[k]);
        const W wide_v = ToWide(v.v[k]);
        g.v[k] = FromWide<T>(log ? wide_g - FastExpOf(wide_v) * sum : wide_v * (wide_g - sum));
      }
      StoreVec<kGroup>(dx + i, g);
    });
  }
}

void ForwardCuda(const SoftmaxArgs& args) {
  DispatchCudaFloat(args.dtype, "softmax", [&](auto zero) {
    using T = decltype(zero);
    const bool groups = args.n % kVec<T> == 0 && AreAligned({args.x, args.y});
    DispatchCudaGroup<kVec<T>>(groups, [&](auto group) {
      constexpr int kGroup = decltype(group)::value;
      Launch("softmax", {GridForRows(args.rows), ThreadsForRow(args.n, kGroup == 1 ? 4 : kGroup)},
             ForwardKernel<T, kGroup>, args.log, args.rows, args.n, static_cast<const T*>(args.x),
             static_cast<T*>(args.y));
    });
  });
}

void BackwardCuda(const SoftmaxGradArgs& args) {
  DispatchCudaFloat(args.dtype, "softmax gradient", [&](auto zero) {
    using T = decltype(zero);
    const bool groups = args.n % kVec<T> == 0 && AreAligned({args.y, args.dy, args.dx});
    DispatchCudaGroup<kVec<T>>(groups, [&](auto group) {
      constexpr int kGroup = decltype(group)::value;
      Launch("softmax gradient",
             {GridForRows(args.rows), ThreadsForRow(args.n, kGroup == 1 ? 4 : kGroup)},
             BackwardKernel<T, kGroup>, args.log, args.rows, args.n, static_cast<const T*>(args.y),
             static_cast<const T*>(args.dy), static_cast<T*>(args.dx));
    });
  });
}

TESSERA_REGISTER_KERNEL(softmax_forward, DeviceType::kCuda, ForwardCuda);
TESSERA_REGISTER_KERNEL(softmax_backward, DeviceType::kCuda, BackwardCuda);

}  // namespace
}  // namespace tessera::cuda
