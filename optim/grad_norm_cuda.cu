// SPDX-License-Identifier: Apache-2.0
// Gradient norms, clipping and the loss scale on the GPU. Sums of squares are exact, as the CPU's.
#include <algorithm>

#include "core/cuda/element.cuh"
#include "core/cuda/groups.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/reduce.cuh"
#include "optim/exact_sum.h"
#include "optim/grad_norm_kernel.h"
#include "optim/grad_scaler_kernel.h"
#include "optim/tensor_batch.cuh"

namespace tessera::optim {
namespace {

using cuda::BF16;
using cuda::BlockReduce;
using cuda::F16;
using cuda::ForEachGroup;
using cuda::FromWide;
using cuda::kVec;
using cuda::Launch;
using cuda::MaxOp;
using cuda::StoreVec;
using cuda::SumOp;
using cuda::ToWide;
using cuda::Vec;

constexpr int kBlock = 256;
constexpr int64_t kScaleChunk = 16384;

// Whether groups of x are read at once.
template <typename T>
__device__ __forceinline__ bool HasGroups(const T* x) {
  return reinterpret_cast<uintptr_t>(x) % sizeof(uint4) == 0;
}

// Elements of a thread at a time, whose squares stay in registers, and of a block.
constexpr int kSquares = 8;
constexpr int64_t kExactBlock = kBlock * kSquares;
constexpr int64_t kNormChunk = 8 * kExactBlock;

__device__ __forceinline__ void AddToWords(int64_t* words, double x) {
  AddExactly(x, [&](int word, int64_t digit) {
    atomicAdd(reinterpret_cast<unsigned long long*>(words + word),
              static_cast<unsigned long long>(digit));
  });
}

// Each term takes the leading bits of all squares, as many as can be summed exactly, and leaves the
// rest to the next (optim/grad_norm_isa.cc). Numbers that are not finite, or too large for sums of
// them, go one by one.
__device__ void AddSquares(double (&squares)[kSquares], int64_t* words) {
  constexpr double kLargest = 0x1p900;
  constexpr int kBits = 41;  // of 53, those that kExactBlock of them need less
  double most = 0;
  bool finite = true;
#pragma unroll
  for (int k = 0; k < kSquares; ++k) {
    finite = finite && squares[k] <= kLargest;
    most = fmax(most, squares[k]);
  }
  if (__syncthreads_or(!finite)) {
    for (int k = 0; k < kSquares; ++k) AddToWords(words, squares[k]);
    return;
  }
  while (true) {
    most = BlockReduce(most, MaxOp(), 0.0);
    if (most == 0) return;
    int exponent;
    frexp(most, &exponent);
    const int last = exponent - kBits;
    const bool all = last <= -1074;  // they have no more bits
    const double grid = all ? 0 : ldexp(1.5, last + 52);
    double sum = 0;
    most = 0;
#pragma unroll
    for (int k = 0; k < kSquares; ++k) {
      const double leading = all ? squares[k] : __dsub_rn(__dadd_rn(squares[k], grid), grid);
      sum += leading;
      squares[k] -= leading;
      most = fmax(most, fabs(squares[k]));
    }
    sum = BlockReduce(sum, SumOp(), 0.0);
    if (threadIdx.x == 0) AddToWords(words, sum);
  }
}

template <typename T>
__device__ void AddSquaresOf(const void* data, int64_t begin, int64_t n, int64_t* words) {
  const T* x = static_cast<const T*>(data) + begin;
  for (int64_t first = 0; first < n; first += kExactBlock) {
    double squares[kSquares];
#pragma unroll
    for (int k = 0; k < kSquares; ++k) {
      const int64_t i = first + k * kBlock + threadIdx.x;
      const double value = i < n ? static_cast<double>(ToWide(x[i])) : 0.0;
      squares[k] = value * value;
    }
    AddSquares(squares, words);
  }
}

__global__ void __launch_bounds__(kBlock)
    SquareSumsKernel(const __grid_constant__ TensorBatch<GradArray> batch, int64_t* words) {
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const GradArray& grad = batch.items[place.tensor];
  switch (grad.dtype) {
    case DType::kFloat32:
      return AddSquaresOf<float>(grad.data, place.begin, place.n, words);
    case DType::kBFloat16:
      return AddSquaresOf<BF16>(grad.data, place.begin, place.n, words);
    case DType::kFloat16:
      return AddSquaresOf<F16>(grad.data, place.begin, place.n, words);
    default:
      return AddSquaresOf<double>(grad.data, place.begin, place.n, words);
  }
}

__global__ void ClearKernel(int64_t* words) { words[threadIdx.x] = 0; }

void SquareSumsCuda(const SquareSumArgs& args) {
  Launch("gradient norm", {1, kSumWords}, ClearKernel, args.words);
  ForEachBatch(args.grads, kNormChunk, [&](const auto& batch, int64_t) {
    Launch("gradient norm", {batch.chunks(), kBlock}, SquareSumsKernel, batch, args.words);
  });
}

__global__ void RoundSumKernel(RoundSumArgs args) { *args.sum = RoundedSum(args.words); }

void RoundSumCuda(const RoundSumArgs& args) {
  Launch("gradient norm sum", {1, 1}, RoundSumKernel, args);
}

__global__ void ClipFactorKernel(ClipFactorArgs args) {
  const double scale = args.loss_scale != nullptr ? static_cast<double>(*args.loss_scale) : 1.0;
  const double norm = sqrt(*args.squared_norm) / scale;
  *args.norm = static_cast<float>(norm);
  const double factor = args.max_norm / (norm + 1e-6);
  // A norm that is no number clips nothing.
  *args.factor = factor < 1.0 ? static_cast<float>(factor) : 1.0f;
  if (args.found_inf != nullptr && !isfinite(norm)) *args.found_inf = 1.0f;
}

void ClipFactorCuda(const ClipFactorArgs& args) {
  Launch("clip factor", {1, 1}, ClipFactorKernel, args);
}

template <typename T>
__device__ __forceinline__ void ScaleBy(void* data, int64_t begin, int64_t n, double factor) {
  using W = cuda::Wide<T>;
  T* x = static_cast<T*>(data) + begin;
  const auto scale = [&]<int kCount>(int64_t i, Vec<T, kCount> v) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      v.v[k] = FromWide<T>(ToWide(v.v[k]) * static_cast<W>(factor));
    }
    StoreVec<kCount>(x + i, v);
  };
  if (HasGroups(x)) {
    ForEachGroup<kVec<T>, 1>(x, n, scale);
  } else {
    ForEachGroup<1, 4>(x, n, scale);
  }
}

__global__ void __launch_bounds__(kBlock)
    ScaleKernel(const __grid_constant__ TensorBatch<GradArray> batch, const float* clip_factor,
                const float* loss_scale) {
  double factor = *clip_factor;
  if (loss_scale != nullptr) factor /= static_cast<double>(*loss_scale);
  if (factor == 1.0) return;
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const GradArray& grad = batch.items[place.tensor];
  switch (grad.dtype) {
    case DType::kFloat32:
      return ScaleBy<float>(grad.data, place.begin, place.n, factor);
    case DType::kBFloat16:
      return ScaleBy<BF16>(grad.data, place.begin, place.n, factor);
    case DType::kFloat16:
      return ScaleBy<F16>(grad.data, place.begin, place.n, factor);
    default:
      return ScaleBy<double>(grad.data, place.begin, place.n, factor);
  }
}

void ScaleGradsCuda(const ScaleGradsArgs& args) {
  ForEachBatch(args.grads, kScaleChunk, [&](const auto& batch, int64_t) {
    Launch("gradient scaling", {batch.chunks(), kBlock}, ScaleKernel, batch, args.clip_factor,
           args.loss_scale);
  });
}

// The rule of optim/grad_scaler.h, as in grad_scaler_cpu.cc.
__global__ void UpdateScaleKernel(UpdateScaleArgs args) {
  const bool overflow = *args.found_inf != 0;
  *args.found_inf = 0;
  if (!args.dynamic) return;
  const double scale = *args.scale;
  if (overflow) {
    *args.good_steps = 0;
    *args.tolerance = max(*args.tolerance - 1, int64_t{0});
    if (*args.tolerance == 0) {
      *args.scale = static_cast<float>(fmax(scale * args.backoff_factor, args.min_scale));
    }
  } else if (++*args.good_steps >= args.growth_interval) {
    *args.good_steps = 0;
    *args.tolerance = args.hysteresis;
    *args.scale = static_cast<float>(fmin(scale * args.growth_factor, args.max_scale));
  }
}

void UpdateScaleCuda(const UpdateScaleArgs& args) {
  Launch("loss scale", {1, 1}, UpdateScaleKernel, args);
}

TESSERA_REGISTER_KERNEL(square_sums, DeviceType::kCuda, SquareSumsCuda);
TESSERA_REGISTER_KERNEL(round_sum, DeviceType::kCuda, RoundSumCuda);
TESSERA_REGISTER_KERNEL(clip_factor, DeviceType::kCuda, ClipFactorCuda);
TESSERA_REGISTER_KERNEL(scale_grads, DeviceType::kCuda, ScaleGradsCuda);
TESSERA_REGISTER_KERNEL(update_scale, DeviceType::kCuda, UpdateScaleCuda);

}  // namespace
}  // namespace tessera::optim
