// SPDX-License-Identifier: Apache-2.0
// Cross-entropy over a (shard of the) vocabulary: one pass over a row's logits for its statistics,
// one for the gradient, which may overwrite them. A block takes a row.
#include "core/cuda/element.cuh"
#include "core/cuda/groups.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/math.cuh"
#include "core/cuda/reduce.cuh"
#include "ops/cross_entropy/cross_entropy_kernel.h"

namespace tessera::cuda {
namespace {

// The maximum so far, and the sum of exp(x - max), which shows a NaN that the maximum does not.
template <typename W>
struct Running {
  W max;
  W sum;

  // As they are of what has the maximum `larger` too. Until a class is possible the sum is 0.
  __device__ __forceinline__ void RaiseTo(W larger) {
    sum *= FastExpOf(max - Base(larger));
    max = larger;
  }
  // What exponents are relative to.
  static __device__ __forceinline__ W Base(W max) {
    return max == static_cast<W>(-INFINITY) ? W(0) : max;
  }
};

struct MergeOp {
  template <typename W>
  __device__ __forceinline__ Running<W> operator()(Running<W> a, Running<W> b) const {
    const W max = LargerOf(a.max, b.max);
    a.RaiseTo(max);
    b.RaiseTo(max);
    return {max, a.sum + b.sum};
  }
};

template <typename W>
__device__ __forceinline__ Running<W> ShuffleXor(Running<W> r, int mask) {
  return {__shfl_xor_sync(0xffffffffu, r.max, mask), __shfl_xor_sync(0xffffffffu, r.sum, mask)};
}

template <typename T, int kGroup, bool kLogitSum>
__global__ void StatsKernel(CrossEntropyStatsArgs args) {
  using W = Wide<T>;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(args.logits) + row * args.stride;
    Running<W> running{static_cast<W>(-INFINITY), W(0)};
    W logit_sum = 0;
    ForEachGroup<kGroup, 2>(x, args.vocab, [&]<int kCount>(int64_t i, Vec<T, kCount> v) {
      W max = running.max;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const W value = ToWide(v.v[k]);
        max = LargerOf(max, value);
        if constexpr (kLogitSum) {
          logit_sum += args.class_weights != nullptr ? value * W(args.class_weights[i + k]) : value;
        }
      }
      running.RaiseTo(max);
      const W base = Running<W>::Base(max);
#pragma unroll
      for (int k = 0; k < kCount; ++k) running.sum += FastExpOf(ToWide(v.v[k]) - base);
    });
    running = BlockReduce(running, MergeOp(), Running<W>{static_cast<W>(-INFINITY), W(0)});
    if constexpr (kLogitSum) logit_sum = BlockReduce(logit_sum, SumOp(), W(0));
    if (threadIdx.x == 0) {
      static_cast<W*>(args.max)[row] = running.max;
      static_cast<W*>(args.sum_exp)[row] = running.sum;
      if constexpr (kLogitSum) static_cast<W*>(args.logit_sum)[row] = logit_sum;
      const int64_t local = args.targets[row] - args.vocab_begin;
      static_cast<W*>(args.target_logit)[row] =
          local >= 0 && local < args.vocab ? ToWide(x[local]) : W(0);
    }
  }
}

template <typename T, int kGroup>
__global__ void GradKernel(CrossEntropyGradArgs args) {
  using W = Wide<T>;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(args.logits) + row * args.stride;
    T* dx = static_cast<T*>(args.dx) + row * args.stride;
    const W lse = static_cast<const W*>(args.lse)[row];
    const W on_target = static_cast<const W*>(args.on_target)[row];
    const W on_all = static_cast<const W*>(args.on_all)[row];
    const W on_softmax = static_cast<const W*>(args.on_softmax)[row];
    const int64_t local = args.targets[row] - args.vocab_begin;
    ForEachGroup<kGroup, 1>(x, args.vocab, [&]<int kCount>(int64_t i, Vec<T, kCount> v) {
      W value[kCount];
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const W weight = args.class_weights != nullptr ? W(args.class_weights[i + k]) : W(1);
        value[k] = on_softmax * FastExpOf(ToWide(v.v[k]) - lse) - on_all * weight;
      }
      // Few groups have the target: its elements are compared in these only.
      if (static_cast<uint64_t>(local - i) < kCount) {
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
          if (i + k == local) value[k] -= on_target;
        }
      }
#pragma unroll
      for (int k = 0; k < kCount; ++k) v.v[k] = FromWide<T>(value[k]);
      StoreVec<kCount>(dx + i, v);
    });
    for (int64_t i = args.vocab + threadIdx.x; i < args.columns; i += blockDim.x) {
      dx[i] = FromWide<T>(0);
    }
  }
}

void StatsCuda(const CrossEntropyStatsArgs& args) {
  DispatchCudaFloat(args.dtype, "cross_entropy", [&](auto zero) {
    using T = decltype(zero);
    const bool groups = args.stride % kVec<T> == 0 && IsAligned(args.logits, 16);
    DispatchCudaGroup<kVec<T>>(groups, [&](auto group) {
      constexpr int kGroup = decltype(group)::value;
      Launch(
          "cross_entropy",
          {GridForRows(args.rows), ThreadsForRow(args.vocab, kGroup == 1 ? 4 : kGroup)},
          args.logit_sum != nullptr ? StatsKernel<T, kGroup, true> : StatsKernel<T, kGroup, false>,
          args);
    });
  });
}

void GradCuda(const CrossEntropyGradArgs& args) {
  DispatchCudaFloat(args.dtype, "cross_entropy gradient", [&](auto zero) {
    using T = decltype(zero);
    const bool groups = args.stride % kVec<T> == 0 && AreAligned({args.logits, args.dx});
    DispatchCudaGroup<kVec<T>>(groups, [&](auto group) {
      constexpr int kGroup = decltype(group)::value;
      Launch("cross_entropy gradient",
             {GridForRows(args.rows), ThreadsForRow(args.columns, kGroup == 1 ? 4 : kGroup)},
             GradKernel<T, kGroup>, args);
    });
  });
}

TESSERA_REGISTER_KERNEL(cross_entropy_stats, DeviceType::kCuda, StatsCuda);
TESSERA_REGISTER_KERNEL(cross_entropy_grad, DeviceType::kCuda, GradCuda);

}  // namespace
}  // namespace tessera::cuda
