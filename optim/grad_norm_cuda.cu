// SPDX-License-Identifier: Apache-2.0
// Gradient norms, clipping and the loss scale on the GPU. Sums are cut into the chunks that the CPU
// cuts them into, each added up by one block in a fixed order, in float64.
#include <algorithm>

#include "core/cuda/element.cuh"
#include "core/cuda/groups.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/reduce.cuh"
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

// The order of additions does not depend on where x lies.
template <typename T>
__device__ __forceinline__ double SquaresOf(const void* data, int64_t begin, int64_t n) {
  const T* x = static_cast<const T*>(data) + begin;
  double sum = 0;
  const auto add = [&]<int kCount>(int64_t, const Vec<T, kCount>& v) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const double value = ToWide(v.v[k]);
      sum += value * value;
    }
  };
  if (HasGroups(x)) {
    ForEachGroup<kVec<T>, 4>(x, n, add);
  } else {
    ForEachGroup<kVec<T>, 4, false>(x, n, add);
  }
  return sum;
}

__global__ void __launch_bounds__(kBlock)
    SquareSumsKernel(const __grid_constant__ TensorBatch<GradArray> batch, double* sums) {
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const GradArray& grad = batch.items[place.tensor];
  double sum = 0;
  switch (grad.dtype) {
    case DType::kFloat32:
      sum = SquaresOf<float>(grad.data, place.begin, place.n);
      break;
    case DType::kBFloat16:
      sum = SquaresOf<BF16>(grad.data, place.begin, place.n);
      break;
    case DType::kFloat16:
      sum = SquaresOf<F16>(grad.data, place.begin, place.n);
      break;
    default:
      sum = SquaresOf<double>(grad.data, place.begin, place.n);
  }
  sum = BlockReduce(sum, SumOp(), 0.0);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

void SquareSumsCuda(const SquareSumArgs& args) {
  ForEachBatch(args.grads, args.chunk, [&](const auto& batch, int64_t before) {
    Launch("gradient norm", {batch.chunks(), kBlock}, SquareSumsKernel, batch, args.sums + before);
  });
}

// One block: a thread adds up a run of neighbours, then the runs are added as a tree.
__global__ void CombineKernel(int64_t n, const double* sums, double* total) {
  const int64_t run = (n + blockDim.x - 1) / blockDim.x;
  const int64_t begin = min(run * threadIdx.x, n);
  const int64_t end = min(begin + run, n);
  double sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += sums[i];
  sum = BlockReduce(sum, SumOp(), 0.0);
  if (threadIdx.x == 0) *total = sum;
}

void CombineSumsCuda(const CombineSumsArgs& args) {
  Launch("gradient norm sum", {1, 1024}, CombineKernel, args.n, args.sums, args.total);
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
TESSERA_REGISTER_KERNEL(combine_sums, DeviceType::kCuda, CombineSumsCuda);
TESSERA_REGISTER_KERNEL(clip_factor, DeviceType::kCuda, ClipFactorCuda);
TESSERA_REGISTER_KERNEL(scale_grads, DeviceType::kCuda, ScaleGradsCuda);
TESSERA_REGISTER_KERNEL(update_scale, DeviceType::kCuda, UpdateScaleCuda);

}  // namespace
}  // namespace tessera::optim
