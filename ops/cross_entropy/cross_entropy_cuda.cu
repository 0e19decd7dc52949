// Cross-entropy over a (shard of the) vocabulary: one pass over a row's logits for its statistics,
// one for the gradient, which may overwrite them. A block takes a row.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/math.cuh"
#include "core/cuda/reduce.cuh"
#include "ops/cross_entropy/cross_entropy_kernel.h"

namespace tessera::cuda {
namespace {

// The maximum so far, and the sum of exp(x - max). A maximum of -inf has a sum of 0.
template <typename W>
struct Running {
  W max;
  W sum;
};

struct MergeOp {
  template <typename W>
  __device__ __forceinline__ Running<W> operator()(Running<W> a, Running<W> b) const {
    const W max = MaxOp()(a.max, b.max);
    const auto part = [&](const Running<W>& r) {
      return r.max == max ? r.sum : r.sum * ExpOf(r.max - max);
    };
    return {max, part(a) + part(b)};
  }
};

template <typename W>
__device__ __forceinline__ Running<W> ShuffleXor(Running<W> r, int mask) {
  return {__shfl_xor_sync(0xffffffffu, r.max, mask), __shfl_xor_sync(0xffffffffu, r.sum, mask)};
}

template <typename T, int kGroup>
__global__ void StatsKernel(CrossEntropyStatsArgs args) {
  using W = Wide<T>;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(args.logits) + row * args.stride;
    Running<W> running{static_cast<W>(-INFINITY), W(0)};
    W logit_sum = 0;
    for (int64_t i = int64_t{threadIdx.x} * kGroup; i < args.vocab;
         i += int64_t{blockDim.x} * kGroup) {
      const Vec<T, kGroup> v = LoadVec<kGroup>(x + i);
      W value[kGroup];
      W max = running.max;
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        const bool in_use = kGroup == 1 || i + k < args.vocab;
        value[k] = in_use ? ToWide(v.v[k]) : static_cast<W>(-INFINITY);
        max = MaxOp()(max, value[k]);
        if (in_use) {
          logit_sum +=
              args.class_weights != nullptr ? value[k] * W(args.class_weights[i + k]) : value[k];
        }
      }
      if (max != running.max) {
        running.sum *= ExpOf(running.max - max);
        running.max = max;
      }
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        if (value[k] != static_cast<W>(-INFINITY)) running.sum += ExpOf(value[k] - max);
      }
    }
    running = BlockReduce(running, MergeOp(), Running<W>{static_cast<W>(-INFINITY), W(0)});
    logit_sum = BlockReduce(logit_sum, SumOp(), W(0));
    if (threadIdx.x == 0) {
      static_cast<W*>(args.max)[row] = running.max;
      static_cast<W*>(args.sum_exp)[row] = running.sum;
      static_cast<W*>(args.logit_sum)[row] = logit_sum;
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
    for (int64_t i = int64_t{threadIdx.x} * kGroup; i < args.columns;
         i += int64_t{blockDim.x} * kGroup) {
      Vec<T, kGroup> v = LoadVec<kGroup>(x + i);
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        W value = 0;
        if (i + k < args.vocab) {
          const W weight = args.class_weights != nullptr ? W(args.class_weights[i + k]) : W(1);
          value = on_softmax * ExpOf(ToWide(v.v[k]) - lse) - on_all * weight;
          if (i + k == local) value -= on_target;
        }
        v.v[k] = FromWide<T>(value);
      }
      if constexpr (kGroup > 1) {
        if (i + kGroup > args.columns) {
#pragma unroll
          for (int k = 0; k < kGroup; ++k) {
            if (i + k < args.columns) dx[i + k] = v.v[k];
          }
          continue;
        }
      }
      StoreVec<kGroup>(dx + i, v);
    }
  }
}

void StatsCuda(const CrossEntropyStatsArgs& args) {
  DispatchCudaFloat(args.dtype, "cross_entropy", [&](auto zero) {
    using T = decltype(zero);
    // A group may reach past the columns in use, not into the next row.
    const bool groups = args.stride % kVec<T> == 0 && IsAligned(args.logits, 16);
    DispatchCudaGroup<kVec<T>>(groups, [&](auto group) {
      constexpr int kGroup = decltype(group)::value;
      Launch("cross_entropy",
             {GridForRows(args.rows), ThreadsForRow(args.vocab, kGroup == 1 ? 4 : kGroup)},
             StatsKernel<T, kGroup>, args);
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
