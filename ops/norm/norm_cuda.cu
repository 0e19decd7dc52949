// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RmsNorm, with the residual added in the same pass. A block takes a row; a thread
// reads again only what it wrote or read itself, which the caches serve.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/reduce.cuh"
#include "core/formula.h"
#include "ops/norm/norm_kernel.h"

namespace tessera::cuda {
namespace {

// Calls f(i) for the first element of each of this thread's groups in a row of n.
template <int kGroup, typename F>
__device__ __forceinline__ void EachGroup(int64_t n, F f) {
  for (int64_t i = int64_t{threadIdx.x} * kGroup; i < n; i += int64_t{blockDim.x} * kGroup) f(i);
}

template <typename T, int kGroup>
__global__ void ForwardKernel(NormArgs args) {
  using W = Wide<T>;
  using Group = Vec<T, kGroup>;
  const int64_t n = args.n;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(args.x) + row * n;
    if (args.residual != nullptr) {
      const T* residual = static_cast<const T*>(args.residual) + row * n;
      T* sum = static_cast<T*>(args.sum) + row * n;
      EachGroup<kGroup>(n, [&](int64_t i) {
        Group a = LoadVec<kGroup>(x + i);
        const Group b = LoadVec<kGroup>(residual + i);
#pragma unroll
        for (int k = 0; k < kGroup; ++k) a.v[k] = FromWide<T>(ToWide(a.v[k]) + ToWide(b.v[k]));
        StoreVec<kGroup>(sum + i, a);
      });
      x = sum;
    }
    W mean = 0;
    if (args.centered) {
      EachGroup<kGroup>(n, [&](int64_t i) {
        const Group v = LoadVec<kGroup>(x + i);
#pragma unroll
        for (int k = 0; k < kGroup; ++k) mean += ToWide(v.v[k]);
      });
      mean = BlockReduce(mean, SumOp(), W(0)) / static_cast<W>(n);
    }
    W squares = 0;
    EachGroup<kGroup>(n, [&](int64_t i) {
      const Group v = LoadVec<kGroup>(x + i);
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        const W d = ToWide(v.v[k]) - mean;
        squares += d * d;
      }
    });
    const W variance = BlockReduce(squares, SumOp(), W(0)) / static_cast<W>(n);
    const W rstd = W(1) / formula::Sqrt(variance + static_cast<W>(args.eps));
    if (threadIdx.x == 0) {
      if (args.centered) static_cast<W*>(args.mean)[row] = mean;
      static_cast<W*>(args.rstd)[row] = rstd;
    }
    const T* weight = static_cast<const T*>(args.weight);
    const T* bias = static_cast<const T*>(args.bias);
    T* y = static_cast<T*>(args.y) + row * n;
    EachGroup<kGroup>(n, [&](int64_t i) {
      Group v = LoadVec<kGroup>(x + i);
      Group w;
      Group b;
      if (weight != nullptr) w = LoadVec<kGroup>(weight + i);
      if (bias != nullptr) b = LoadVec<kGroup>(bias + i);
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        W value = (ToWide(v.v[k]) - mean) * rstd;
        if (weight != nullptr) value *= ToWide(w.v[k]) + static_cast<W>(args.weight_offset);
        if (bias != nullptr) value += ToWide(b.v[k]);
        v.v[k] = FromWide<T>(value);
      }
      StoreVec<kGroup>(y + i, v);
    });
  }
}

// Threads of a block of gradients: of several rows, and of one that needs more.
constexpr int kThreadsOfRows = 512;
constexpr int kMostThreadsOfRow = 1024;

// Sums over a row.
template <typename W>
struct Moments {
  W g;
  W gh;
};

// Of the row of this thread's threadIdx.y; all threads of the block call this, with `turn` 0 and 1
// in turns.
template <typename W>
__device__ __forceinline__ Moments<W> SumOfRow(Moments<W> sum, int turn) {
  auto& partial = BlockShared<Moments<W>[2][32]>();
  const int warps = blockDim.x / 32;
  const int first = threadIdx.y * warps;
  sum = {WarpReduce(sum.g, SumOp()), WarpReduce(sum.gh, SumOp())};
  if (warps == 1) return sum;
  if (threadIdx.x % 32 == 0) partial[turn][first + threadIdx.x / 32] = sum;
  __syncthreads();
  sum = partial[turn][first];
  for (int warp = 1; warp < warps; ++warp) {
    sum.g += partial[turn][first + warp].g;
    sum.gh += partial[turn][first + warp].gh;
  }
  return sum;
}

// What kGroup columns add to the gradients of weight and bias.
template <typename W, int kGroup>
struct ColumnSums {
  W weight[kGroup] = {};
  W bias[kGroup] = {};
};

// A block takes the rows of a chunk, threadIdx.y of them at once. With g = dy
// (weight + weight_offset) and h = (x - mean) rstd: dx = rstd (g - mean(g) - h mean(g h)) (+ dsum),
// and the chunk's sums of dy h and dy, in an order that the shape alone decides. kOnce: a thread
// has one group of a row at most, whose sums are in registers; otherwise they lie in the partial
// results.
template <typename T, int kGroup, bool kOnce>
__global__ void __launch_bounds__(kMostThreadsOfRow) GradKernel(NormGradArgs args) {
  using W = Wide<T>;
  using Group = Vec<T, kGroup>;
  const int64_t n = args.n;
  const T* weight = static_cast<const T*>(args.weight);
  int turn = 0;
  for (int64_t chunk = blockIdx.x; chunk < args.chunks.count(); chunk += gridDim.x) {
    const auto partial = [&](void* sums) {
      return sums == nullptr ? nullptr : static_cast<W*>(sums) + chunk * n;
    };
    W* const dweight = partial(args.dweight_partial);
    W* const dbias = partial(args.dbias_partial);
    const auto store = [&](int64_t i, const ColumnSums<W, kGroup>& sums) {
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        if (dweight != nullptr) dweight[i + k] = sums.weight[k];
        if (dbias != nullptr) dbias[i + k] = sums.bias[k];
      }
    };
    ColumnSums<W, kGroup> sums;
    if constexpr (!kOnce) EachGroup<kGroup>(n, [&](int64_t i) { store(i, sums); });
    const auto [begin, end] = args.chunks.RowsOf(chunk);
    for (int64_t first = begin; first < end; first += blockDim.y) {
      const int64_t row = first + threadIdx.y;
      const bool there = row < end;
      const T* x = static_cast<const T*>(args.x) + row * n;
      const T* dy = static_cast<const T*>(args.dy) + row * n;
      const W mean = there && args.centered ? static_cast<const W*>(args.mean)[row] : W(0);
      const W rstd = there ? static_cast<const W*>(args.rstd)[row] : W(0);
      Group vx;
      Group vd;
      Group vw;
      const auto load = [&](int64_t i) {
        vx = LoadVec<kGroup>(x + i);
        vd = LoadVec<kGroup>(dy + i);
        if (weight != nullptr) vw = LoadVec<kGroup>(weight + i);
      };
      const auto h_of = [&](int k) { return (ToWide(vx.v[k]) - mean) * rstd; };
      const auto g_of = [&](int k) {
        return ToWide(vd.v[k]) *
               (weight != nullptr ? ToWide(vw.v[k]) + static_cast<W>(args.weight_offset) : W(1));
      };
      Moments<W> row_sums{0, 0};
      if (there) {
        EachGroup<kGroup>(n, [&](int64_t i) {
          load(i);
#pragma unroll
          for (int k = 0; k < kGroup; ++k) {
            const W h = h_of(k);
            const W d = ToWide(vd.v[k]);
            row_sums.g += g_of(k);
            row_sums.gh += g_of(k) * h;
            if constexpr (kOnce) {
              sums.weight[k] += d * h;
              sums.bias[k] += d;
            } else {
              if (dweight != nullptr) dweight[i + k] += d * h;
              if (dbias != nullptr) dbias[i + k] += d;
            }
          }
        });
      }
      if (args.dx == nullptr) continue;
      row_sums = SumOfRow(row_sums, turn);
      turn = 1 - turn;
      if (!there) continue;
      const W mean_g = args.centered ? row_sums.g / static_cast<W>(n) : W(0);
      const W mean_gh = row_sums.gh / static_cast<W>(n);
      T* dx = static_cast<T*>(args.dx) + row * n;
      const T* dsum = args.dsum != nullptr ? static_cast<const T*>(args.dsum) + row * n : nullptr;
      EachGroup<kGroup>(n, [&](int64_t i) {
        load(i);  // again: the caches have it, registers are dearer
        Group vs;
        if (dsum != nullptr) vs = LoadVec<kGroup>(dsum + i);
        Group out;
#pragma unroll
        for (int k = 0; k < kGroup; ++k) {
          W value = rstd * (g_of(k) - mean_g - h_of(k) * mean_gh);
          if (dsum != nullptr) value += ToWide(vs.v[k]);
          out.v[k] = FromWide<T>(value);
        }
        StoreVec<kGroup>(dx + i, out);
      });
    }
    if constexpr (kOnce) {
      // Those of threadIdx.y 0 take the others' sums, in order.
      auto* const others = DynamicShared<ColumnSums<W, kGroup>>();
      for (unsigned lane = 1; lane < blockDim.y; ++lane) {
        __syncthreads();  // what was there before is read
        if (threadIdx.y == lane) others[threadIdx.x] = sums;
        __syncthreads();
        if (threadIdx.y > 0) continue;
#pragma unroll
        for (int k = 0; k < kGroup; ++k) {
          sums.weight[k] += others[threadIdx.x].weight[k];
          sums.bias[k] += others[threadIdx.x].bias[k];
        }
      }
      if (threadIdx.y == 0) EachGroup<kGroup>(n, [&](int64_t i) { store(i, sums); });
    }
  }
}

void ForwardCuda(const NormArgs& args) {
  DispatchCudaFloat(args.dtype, "norm", [&](auto zero) {
    using T = decltype(zero);
    const bool groups = args.n % kVec<T> == 0 && AreAligned({args.x, args.residual, args.weight,
                                                             args.bias, args.sum, args.y});
    DispatchCudaGroup<kVec<T>>(groups, [&](auto group) {
      constexpr int kGroup = decltype(group)::value;
      Launch("norm", {GridForRows(args.rows), ThreadsForRow(args.n, kGroup == 1 ? 4 : kGroup)},
             ForwardKernel<T, kGroup>, args);
    });
  });
}

void BackwardCuda(const NormGradArgs& args) {
  DispatchCudaFloat(args.dtype, "norm gradient", [&](auto zero) {
    using T = decltype(zero);
    const bool groups =
        args.n % kVec<T> == 0 && AreAligned({args.x, args.weight, args.dy, args.dsum, args.dx});
    DispatchCudaGroup<kVec<T>>(groups, [&](auto group) {
      constexpr int kGroup = decltype(group)::value;
      const int64_t for_row = (args.n / kGroup + 31) / 32 * 32;
      const bool once = for_row <= kMostThreadsOfRow;
      const int64_t threads = once ? for_row : kThreadsOfRows;
      const int64_t rows = once ? std::clamp<int64_t>(kThreadsOfRows / threads, 1, 16) : 1;
      const size_t shared = rows > 1 ? threads * sizeof(ColumnSums<Wide<T>, kGroup>) : 0;
      Launch("norm gradient",
             {GridForRows(args.chunks.count()),
              dim3(static_cast<unsigned>(threads), static_cast<unsigned>(rows)), shared},
             once ? GradKernel<T, kGroup, true> : GradKernel<T, kGroup, false>, args);
    });
  });
}

TESSERA_REGISTER_KERNEL(norm_forward, DeviceType::kCuda, ForwardCuda);
TESSERA_REGISTER_KERNEL(norm_backward, DeviceType::kCuda, BackwardCuda);

}  // namespace
}  // namespace tessera::cuda
