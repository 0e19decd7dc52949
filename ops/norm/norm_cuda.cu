// LayerNorm and RmsNorm, with the residual added in the same pass. A block takes a row; a thread
// reads again only what it wrote or read itself, which the caches serve.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/math.cuh"
#include "core/cuda/reduce.cuh"
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
    const W rstd = W(1) / RootOf(variance + static_cast<W>(args.eps));
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
        if (weight != nullptr) value *= ToWide(w.v[k]);
        if (bias != nullptr) value += ToWide(b.v[k]);
        v.v[k] = FromWide<T>(value);
      }
      StoreVec<kGroup>(y + i, v);
    });
  }
}

// dx = rstd (g - mean(g) - h mean(g h)) (+ dsum), g = dy weight, h = (x - mean) rstd.
template <typename T, int kGroup>
__global__ void InputGradKernel(NormGradArgs args) {
  using W = Wide<T>;
  using Group = Vec<T, kGroup>;
  const int64_t n = args.n;
  const T* weight = static_cast<const T*>(args.weight);
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(args.x) + row * n;
    const T* dy = static_cast<const T*>(args.dy) + row * n;
    const W mean = args.centered ? static_cast<const W*>(args.mean)[row] : W(0);
    const W rstd = static_cast<const W*>(args.rstd)[row];
    W sum_g = 0;
    W sum_gh = 0;
    EachGroup<kGroup>(n, [&](int64_t i) {
      const Group vx = LoadVec<kGroup>(x + i);
      const Group vg = LoadVec<kGroup>(dy + i);
      Group w;
      if (weight != nullptr) w = LoadVec<kGroup>(weight + i);
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        const W g = ToWide(vg.v[k]) * (weight != nullptr ? ToWide(w.v[k]) : W(1));
        sum_g += g;
        sum_gh += g * (ToWide(vx.v[k]) - mean) * rstd;
      }
    });
    const W mean_g = args.centered ? BlockReduce(sum_g, SumOp(), W(0)) / static_cast<W>(n) : W(0);
    const W mean_gh = BlockReduce(sum_gh, SumOp(), W(0)) / static_cast<W>(n);
    T* dx = static_cast<T*>(args.dx) + row * n;
    const T* dsum = args.dsum != nullptr ? static_cast<const T*>(args.dsum) + row * n : nullptr;
    EachGroup<kGroup>(n, [&](int64_t i) {
      const Group vx = LoadVec<kGroup>(x + i);
      const Group vg = LoadVec<kGroup>(dy + i);
      Group w;
      Group s;
      if (weight != nullptr) w = LoadVec<kGroup>(weight + i);
      if (dsum != nullptr) s = LoadVec<kGroup>(dsum + i);
      Group out;
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        const W g = ToWide(vg.v[k]) * (weight != nullptr ? ToWide(w.v[k]) : W(1));
        const W h = (ToWide(vx.v[k]) - mean) * rstd;
        W value = rstd * (g - mean_g - h * mean_gh);
        if (dsum != nullptr) value += ToWide(s.v[k]);
        out.v[k] = FromWide<T>(value);
      }
      StoreVec<kGroup>(dx + i, out);
    });
  }
}

constexpr int kColumns = 32;
constexpr int kRowLanes = 8;

// Sums over the kNormGradRows rows of chunk blockIdx.y: threadIdx.x is a column, threadIdx.y takes
// every kRowLanes-th row; the lanes are added in order.
template <typename T>
__global__ void WeightGradKernel(NormGradArgs args) {
  using W = Wide<T>;
  auto& weight_sums = BlockShared<W[kRowLanes][kColumns], 0>();
  auto& bias_sums = BlockShared<W[kRowLanes][kColumns], 1>();
  const int64_t column = int64_t{blockIdx.x} * kColumns + threadIdx.x;
  const int64_t chunks = (args.rows + kNormGradRows - 1) / kNormGradRows;
  for (int64_t chunk = blockIdx.y; chunk < chunks; chunk += gridDim.y) {
    const int64_t begin = chunk * kNormGradRows;
    const int64_t end = min(begin + kNormGradRows, args.rows);
    W dweight = 0;
    W dbias = 0;
    if (column < args.n) {
      for (int64_t row = begin + threadIdx.y; row < end; row += kRowLanes) {
        const W g = ToWide(static_cast<const T*>(args.dy)[row * args.n + column]);
        const W mean = args.centered ? static_cast<const W*>(args.mean)[row] : W(0);
        const W rstd = static_cast<const W*>(args.rstd)[row];
        const W h = (ToWide(static_cast<const T*>(args.x)[row * args.n + column]) - mean) * rstd;
        dweight += g * h;
        dbias += g;
      }
    }
    weight_sums[threadIdx.y][threadIdx.x] = dweight;
    bias_sums[threadIdx.y][threadIdx.x] = dbias;
    __syncthreads();
    if (threadIdx.y == 0 && column < args.n) {
      for (int lane = 1; lane < kRowLanes; ++lane) {
        dweight += weight_sums[lane][threadIdx.x];
        dbias += bias_sums[lane][threadIdx.x];
      }
      if (args.dweight_partial != nullptr) {
        static_cast<W*>(args.dweight_partial)[chunk * args.n + column] = dweight;
      }
      if (args.dbias_partial != nullptr) {
        static_cast<W*>(args.dbias_partial)[chunk * args.n + column] = dbias;
      }
    }
    __syncthreads();
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
    if (args.dx != nullptr) {
      const bool groups =
          args.n % kVec<T> == 0 && AreAligned({args.x, args.weight, args.dy, args.dsum, args.dx});
      DispatchCudaGroup<kVec<T>>(groups, [&](auto group) {
        constexpr int kGroup = decltype(group)::value;
        Launch("norm gradient",
               {GridForRows(args.rows), ThreadsForRow(args.n, kGroup == 1 ? 4 : kGroup)},
               InputGradKernel<T, kGroup>, args);
      });
    }
    if (args.dweight_partial != nullptr || args.dbias_partial != nullptr) {
      const int64_t chunks = (args.rows + kNormGradRows - 1) / kNormGradRows;
      const dim3 grid(static_cast<unsigned>((args.n + kColumns - 1) / kColumns),
                      static_cast<unsigned>(std::min<int64_t>(chunks, 65535)));
      Launch("norm gradient", {grid, dim3(kColumns, kRowLanes)}, WeightGradKernel<T>, args);
    }
  });
}

TESSERA_REGISTER_KERNEL(norm_forward, DeviceType::kCuda, ForwardCuda);
TESSERA_REGISTER_KERNEL(norm_backward, DeviceType::kCuda, BackwardCuda);

}  // namespace
}  // namespace tessera::cuda
