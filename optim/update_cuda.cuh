// SPDX-License-Identifier: Apache-2.0
// What the GPU's kernels of elementwise updates share. Step, learning rate, clip factor, loss scale
// and found-inf are read on the device. Included by .cu files only.
#ifndef TESSERA_OPTIM_UPDATE_CUDA_CUH_
#define TESSERA_OPTIM_UPDATE_CUDA_CUH_

#include <type_traits>

#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/shared.cuh"
#include "optim/tensor_batch.cuh"
#include "optim/update_kernel.h"

namespace tessera::optim::update {

using cuda::BF16;
using cuda::F16;
using cuda::FromWide;
using cuda::LoadVec;
using cuda::StoreVec;
using cuda::ToWide;
using cuda::Vec;

inline constexpr int kBlock = 256;
inline constexpr int kGroup = 4;

struct UpdateItem {
  int64_t n;
  void* param;
  const void* grad;
  float* master;
  void* states[kMaxStates];
  double lr_scale;
  double weight_decay;
  DType dtype;
  DType grad_dtype;
  bool groups;  // every pointer is aligned for groups of kGroup
};

inline bool Aligned(const void* p, DType dtype) {
  return p == nullptr || cuda::IsAligned(p, DTypeSize(dtype) * kGroup);
}

inline std::vector<UpdateItem> ItemsOf(const std::vector<UpdateTensor>& tensors, bool wide) {
  std::vector<UpdateItem> items;
  for (const UpdateTensor& t : tensors) {
    if ((t.dtype == DType::kFloat64) != wide) continue;
    const DType state = AccumulateDType(t.dtype);
    const bool groups = Aligned(t.param, t.dtype) && Aligned(t.grad, t.grad_dtype) &&
                        Aligned(t.master, DType::kFloat32) && Aligned(t.states[0], state) &&
                        Aligned(t.states[1], state);
    items.push_back({t.n,
                     t.param,
                     t.grad,
                     t.master,
                     {t.states[0], t.states[1]},
                     t.lr_scale,
                     t.weight_decay,
                     t.dtype,
                     t.grad_dtype,
                     groups});
  }
  return items;
}

__device__ __forceinline__ bool Skipped(const UpdateScalars& s) {
  return s.found_inf != nullptr && *s.found_inf != 0;
}
__device__ __forceinline__ double GradScale(const UpdateScalars& s) {
  const double clip = s.clip_factor != nullptr ? static_cast<double>(*s.clip_factor) : 1.0;
  return s.loss_scale != nullptr ? clip / static_cast<double>(*s.loss_scale) : clip;
}

// kCount elements from `i` on as float.
template <int kCount, typename T>
__device__ __forceinline__ Vec<float, kCount> ReadAs(const void* data, int64_t i) {
  const Vec<T, kCount> v = LoadVec<kCount>(static_cast<const T*>(data) + i);
  Vec<float, kCount> out;
#pragma unroll
  for (int k = 0; k < kCount; ++k) out.v[k] = ToWide(v.v[k]);
  return out;
}
template <int kCount>
__device__ __forceinline__ Vec<float, kCount> Read(DType dtype, const void* data, int64_t i) {
  if (dtype == DType::kFloat32) return ReadAs<kCount, float>(data, i);
  if (dtype == DType::kBFloat16) return ReadAs<kCount, BF16>(data, i);
  return ReadAs<kCount, F16>(data, i);
}
// What is read again a step later only. A store of the struct would become one for each element.
template <typename Word, int kCount, typename T>
__device__ __forceinline__ void StoreWord(T* p, const Vec<T, kCount>& v) {
  static_assert(sizeof(Word) == sizeof(v));
  __stcs(reinterpret_cast<Word*>(p), *reinterpret_cast<const Word*>(&v));
}
template <int kCount, typename T>
__device__ __forceinline__ void WriteAs(void* data, int64_t i, const Vec<float, kCount>& v) {
  Vec<T, kCount> out;
#pragma unroll
  for (int k = 0; k < kCount; ++k) out.v[k] = FromWide<T>(v.v[k]);
  T* p = static_cast<T*>(data) + i;
  if constexpr (sizeof(out) == sizeof(uint4)) {
    StoreWord<uint4>(p, out);
  } else if constexpr (sizeof(out) == sizeof(uint2)) {
    StoreWord<uint2>(p, out);
  } else {
    StoreVec<kCount>(p, out);
  }
}

// The weights as float32: the parameter itself, or the master of a half-precision one.
template <int kCount>
__device__ __forceinline__ Vec<float, kCount> ReadWeights(const UpdateItem& t, int64_t i) {
  return Read<kCount>(DType::kFloat32, t.dtype == DType::kFloat32 ? t.param : t.master, i);
}
template <int kCount>
__device__ __forceinline__ void WriteWeights(const UpdateItem& t, int64_t i,
                                             const Vec<float, kCount>& w) {
  if (t.dtype == DType::kFloat32) {
    WriteAs<kCount, float>(t.param, i, w);
    return;
  }
  WriteAs<kCount, float>(t.master, i, w);
  if (t.dtype == DType::kBFloat16) {
    WriteAs<kCount, BF16>(t.param, i, w);
  } else {
    WriteAs<kCount, F16>(t.param, i, w);
  }
}

// Calls f(std::integral_constant<int, kCount>, i) over a chunk: groups, then what is left.
template <typename F>
__device__ __forceinline__ void EachOf(const UpdateItem& t, const ChunkPlace& place, F f) {
  const int64_t groups = t.groups ? place.n / kGroup : 0;
  for (int64_t g = threadIdx.x; g < groups; g += blockDim.x) {
    f(std::integral_constant<int, kGroup>(), place.begin + g * kGroup);
  }
  for (int64_t i = groups * kGroup + threadIdx.x; i < place.n; i += blockDim.x) {
    f(std::integral_constant<int, 1>(), place.begin + i);
  }
}

// A float64 parameter's gradient has any dtype.
__device__ __forceinline__ double ReadDouble(DType dtype, const void* data, int64_t i) {
  if (dtype == DType::kFloat64) return static_cast<const double*>(data)[i];
  return Read<1>(dtype, data, i).v[0];
}

// What a rule computes of the step, once for a block.
template <typename Rule>
__device__ __forceinline__ const typename Rule::Step& StepOf(const Rule& rule,
                                                             const UpdateScalars& scalars) {
  auto& step = cuda::BlockShared<typename Rule::Step>();
  if constexpr (!std::is_empty_v<typename Rule::Step>) {
    if (threadIdx.x == 0) step = rule.StepAt(static_cast<double>(*scalars.step));
    __syncthreads();
  }
  return step;
}

// An update by a rule (optim/update_chunks.h), over all float32 and half-precision parameters.
template <typename Rule>
__global__ void __launch_bounds__(kBlock)
    UpdateKernel(const __grid_constant__ TensorBatch<UpdateItem> batch, UpdateScalars scalars,
                 Rule rule) {
  if (Skipped(scalars)) return;
  const auto& step = StepOf(rule, scalars);
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const UpdateItem& t = batch.items[place.tensor];
  const auto factors =
      rule.template FactorsOf<float>(step, *scalars.learning_rate * t.lr_scale, t.weight_decay);
  const auto grad_scale = static_cast<float>(GradScale(scalars));
  EachOf(t, place, [&](auto count, int64_t i) {
    constexpr int kCount = decltype(count)::value;
    Vec<float, kCount> w = ReadWeights<kCount>(t, i);
    const Vec<float, kCount> grad = Read<kCount>(t.grad_dtype, t.grad, i);
    Vec<float, kCount> states[Rule::kStates] = {};
#pragma unroll
    for (int s = 0; s < Rule::kStates; ++s) {
      if (t.states[s] != nullptr) states[s] = Read<kCount>(DType::kFloat32, t.states[s], i);
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      float own[Rule::kStates];
#pragma unroll
      for (int s = 0; s < Rule::kStates; ++s) own[s] = states[s].v[k];
      Rule::Apply(factors, grad.v[k] * grad_scale, &w.v[k], own);
#pragma unroll
      for (int s = 0; s < Rule::kStates; ++s) states[s].v[k] = own[s];
    }
#pragma unroll
    for (int s = 0; s < Rule::kStates; ++s) {
      if (t.states[s] != nullptr) WriteAs<kCount, float>(t.states[s], i, states[s]);
    }
    WriteWeights(t, i, w);
  });
}

// The same over float64 parameters.
template <typename Rule>
__global__ void UpdateDoubleKernel(const __grid_constant__ TensorBatch<UpdateItem> batch,
                                   UpdateScalars scalars, Rule rule) {
  if (Skipped(scalars)) return;
  const auto& step = StepOf(rule, scalars);
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const UpdateItem& t = batch.items[place.tensor];
  const auto factors =
      rule.template FactorsOf<double>(step, *scalars.learning_rate * t.lr_scale, t.weight_decay);
  const double grad_scale = GradScale(scalars);
  double* param = static_cast<double*>(t.param);
  for (int64_t i = place.begin + threadIdx.x; i < place.begin + place.n; i += blockDim.x) {
    double states[Rule::kStates] = {};
    for (int s = 0; s < Rule::kStates; ++s) {
      if (t.states[s] != nullptr) states[s] = static_cast<const double*>(t.states[s])[i];
    }
    Rule::Apply(factors, ReadDouble(t.grad_dtype, t.grad, i) * grad_scale, &param[i], states);
    for (int s = 0; s < Rule::kStates; ++s) {
      if (t.states[s] != nullptr) static_cast<double*>(t.states[s])[i] = states[s];
    }
  }
}

// The GPU's kernel of a rule.
template <typename Rule>
void UpdateCuda(const UpdateArgs<Rule>& args) {
  ForEachBatch(ItemsOf(args.tensors, false), kUpdateChunk, [&](const auto& batch, int64_t) {
    cuda::Launch("optimizer step", {batch.chunks(), kBlock}, UpdateKernel<Rule>, batch,
                 args.scalars, args.rule);
  });
  ForEachBatch(ItemsOf(args.tensors, true), kUpdateChunk, [&](const auto& batch, int64_t) {
    cuda::Launch("optimizer step", {batch.chunks(), kBlock}, UpdateDoubleKernel<Rule>, batch,
                 args.scalars, args.rule);
  });
}

}  // namespace tessera::optim::update

#endif  // TESSERA_OPTIM_UPDATE_CUDA_CUH_
