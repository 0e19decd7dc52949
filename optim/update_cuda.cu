// Adam and SGD over all parameters in a few launches, each element by the formulas (and in float32
// the very operations) of optim/update_isa.cc. Step, learning rate, clip factor, loss scale and
// found-inf are read on the device.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "optim/tensor_batch.cuh"
#include "optim/update_kernel.h"

namespace tessera::optim {
namespace {

using cuda::BF16;
using cuda::F16;
using cuda::FromWide;
using cuda::Launch;
using cuda::LoadVec;
using cuda::StoreVec;
using cuda::ToWide;
using cuda::Vec;

constexpr int kBlock = 256;
constexpr int kGroup = 4;

struct UpdateItem {
  int64_t n;
  void* param;
  const void* grad;
  float* master;
  void* first;
  void* second;
  double lr_scale;
  double weight_decay;
  DType dtype;
  DType grad_dtype;
  bool groups;  // every pointer is aligned for groups of kGroup
};

bool Aligned(const void* p, DType dtype) {
  return p == nullptr || cuda::IsAligned(p, DTypeSize(dtype) * kGroup);
}

std::vector<UpdateItem> ItemsOf(const std::vector<UpdateTensor>& tensors, bool wide) {
  std::vector<UpdateItem> items;
  for (const UpdateTensor& t : tensors) {
    if ((t.dtype == DType::kFloat64) != wide) continue;
    const DType state = AccumulateDType(t.dtype);
    const bool groups = Aligned(t.param, t.dtype) && Aligned(t.grad, t.grad_dtype) &&
                        Aligned(t.master, DType::kFloat32) && Aligned(t.first, state) &&
                        Aligned(t.second, state);
    items.push_back({t.n, t.param, t.grad, t.master, t.first, t.second, t.lr_scale, t.weight_decay,
                     t.dtype, t.grad_dtype, groups});
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
template <int kCount, typename T>
__device__ __forceinline__ void WriteAs(void* data, int64_t i, const Vec<float, kCount>& v) {
  Vec<T, kCount> out;
#pragma unroll
  for (int k = 0; k < kCount; ++k) out.v[k] = FromWide<T>(v.v[k]);
  StoreVec<kCount>(static_cast<T*>(data) + i, out);
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

struct AdamSettings {
  double beta1;
  double beta2;
  double eps;
  bool decoupled;
};
// What depends on the step.
struct AdamStep {
  double grad_scale;
  double lr;
  double inverse_bias1;
  double inverse_sqrt_bias2;
};

__device__ __forceinline__ void ComputeStep(const UpdateScalars& scalars, const AdamSettings& adam,
                                            AdamStep* step) {
  if (threadIdx.x == 0) {
    const auto count = static_cast<double>(*scalars.step);
    step->grad_scale = GradScale(scalars);
    step->lr = *scalars.learning_rate;
    step->inverse_bias1 = 1.0 / (1.0 - pow(adam.beta1, count));
    step->inverse_sqrt_bias2 = 1.0 / sqrt(1.0 - pow(adam.beta2, count));
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kBlock)
    AdamKernel(const __grid_constant__ TensorBatch<UpdateItem> batch, UpdateScalars scalars,
               AdamSettings adam) {
  if (Skipped(scalars)) return;
  auto& step = cuda::BlockShared<AdamStep>();
  ComputeStep(scalars, adam, &step);
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const UpdateItem& t = batch.items[place.tensor];
  const double lr = step.lr * t.lr_scale;
  const auto grad_scale = static_cast<float>(step.grad_scale);
  const float l2 = adam.decoupled ? 0.0f : static_cast<float>(t.weight_decay);
  const float decay = adam.decoupled ? static_cast<float>(lr * t.weight_decay) : 0.0f;
  const auto beta1 = static_cast<float>(adam.beta1);
  const auto one_minus_beta1 = static_cast<float>(1.0 - adam.beta1);
  const auto beta2 = static_cast<float>(adam.beta2);
  const auto one_minus_beta2 = static_cast<float>(1.0 - adam.beta2);
  const auto inverse_sqrt_bias2 = static_cast<float>(step.inverse_sqrt_bias2);
  const auto eps = static_cast<float>(adam.eps);
  const auto step_size = static_cast<float>(lr * step.inverse_bias1);
  EachOf(t, place, [&](auto count, int64_t i) {
    constexpr int kCount = decltype(count)::value;
    Vec<float, kCount> w = ReadWeights<kCount>(t, i);
    const Vec<float, kCount> grad = Read<kCount>(t.grad_dtype, t.grad, i);
    Vec<float, kCount> m = Read<kCount>(DType::kFloat32, t.first, i);
    Vec<float, kCount> v = Read<kCount>(DType::kFloat32, t.second, i);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const float g = fmaf(l2, w.v[k], __fmul_rn(grad.v[k], grad_scale));
      m.v[k] = fmaf(beta1, m.v[k], __fmul_rn(one_minus_beta1, g));
      v.v[k] = fmaf(beta2, v.v[k], __fmul_rn(__fmul_rn(one_minus_beta2, g), g));
      w.v[k] = fmaf(-decay, w.v[k], w.v[k]);
      const float denominator = fmaf(__fsqrt_rn(v.v[k]), inverse_sqrt_bias2, eps);
      w.v[k] = fmaf(-step_size, __fdiv_rn(m.v[k], denominator), w.v[k]);
    }
    WriteAs<kCount, float>(t.first, i, m);
    WriteAs<kCount, float>(t.second, i, v);
    WriteWeights(t, i, w);
  });
}

// A float64 parameter's gradient has any dtype.
__device__ __forceinline__ double ReadDouble(DType dtype, const void* data, int64_t i) {
  if (dtype == DType::kFloat64) return static_cast<const double*>(data)[i];
  return Read<1>(dtype, data, i).v[0];
}

__global__ void AdamDoubleKernel(const __grid_constant__ TensorBatch<UpdateItem> batch,
                                 UpdateScalars scalars, AdamSettings adam) {
  if (Skipped(scalars)) return;
  auto& step = cuda::BlockShared<AdamStep>();
  ComputeStep(scalars, adam, &step);
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const UpdateItem& t = batch.items[place.tensor];
  const double lr = step.lr * t.lr_scale;
  double* p = static_cast<double*>(t.param);
  double* m = static_cast<double*>(t.first);
  double* v = static_cast<double*>(t.second);
  for (int64_t i = place.begin + threadIdx.x; i < place.begin + place.n; i += blockDim.x) {
    double g = ReadDouble(t.grad_dtype, t.grad, i) * step.grad_scale;
    if (adam.decoupled) {
      p[i] -= lr * t.weight_decay * p[i];
    } else {
      g += t.weight_decay * p[i];
    }
    m[i] = adam.beta1 * m[i] + (1.0 - adam.beta1) * g;
    v[i] = adam.beta2 * v[i] + (1.0 - adam.beta2) * g * g;
    p[i] -= lr * step.inverse_bias1 * m[i] / (sqrt(v[i]) * step.inverse_sqrt_bias2 + adam.eps);
  }
}

struct SgdSettings {
  double momentum;
  bool nesterov;
};

__global__ void __launch_bounds__(kBlock)
    SgdKernel(const __grid_constant__ TensorBatch<UpdateItem> batch, UpdateScalars scalars,
              SgdSettings sgd) {
  if (Skipped(scalars)) return;
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const UpdateItem& t = batch.items[place.tensor];
  const auto grad_scale = static_cast<float>(GradScale(scalars));
  const auto l2 = static_cast<float>(t.weight_decay);
  const auto momentum = static_cast<float>(sgd.momentum);
  const auto lr = static_cast<float>(*scalars.learning_rate * t.lr_scale);
  EachOf(t, place, [&](auto count, int64_t i) {
    constexpr int kCount = decltype(count)::value;
    Vec<float, kCount> w = ReadWeights<kCount>(t, i);
    Vec<float, kCount> g = Read<kCount>(t.grad_dtype, t.grad, i);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      g.v[k] = fmaf(l2, w.v[k], __fmul_rn(g.v[k], grad_scale));
    }
    if (t.first != nullptr) {
      Vec<float, kCount> b = Read<kCount>(DType::kFloat32, t.first, i);
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        b.v[k] = fmaf(momentum, b.v[k], g.v[k]);
        g.v[k] = sgd.nesterov ? fmaf(momentum, b.v[k], g.v[k]) : b.v[k];
      }
      WriteAs<kCount, float>(t.first, i, b);
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) w.v[k] = fmaf(-lr, g.v[k], w.v[k]);
    WriteWeights(t, i, w);
  });
}

__global__ void SgdDoubleKernel(const __grid_constant__ TensorBatch<UpdateItem> batch,
                                UpdateScalars scalars, SgdSettings sgd) {
  if (Skipped(scalars)) return;
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const UpdateItem& t = batch.items[place.tensor];
  const double lr = *scalars.learning_rate * t.lr_scale;
  const double grad_scale = GradScale(scalars);
  double* p = static_cast<double*>(t.param);
  double* buffer = static_cast<double*>(t.first);
  for (int64_t i = place.begin + threadIdx.x; i < place.begin + place.n; i += blockDim.x) {
    double g = ReadDouble(t.grad_dtype, t.grad, i) * grad_scale + t.weight_decay * p[i];
    if (buffer != nullptr) {
      buffer[i] = sgd.momentum * buffer[i] + g;
      g = sgd.nesterov ? g + sgd.momentum * buffer[i] : buffer[i];
    }
    p[i] -= lr * g;
  }
}

__global__ void AdvanceKernel(UpdateScalars scalars) {
  if (!Skipped(scalars)) ++*scalars.step;
}

void AdvanceCuda(const AdvanceArgs& args) {
  Launch("optimizer step count", {1, 1}, AdvanceKernel, args.scalars);
}

void AdamCuda(const AdamArgs& args) {
  const AdamSettings adam{args.beta1, args.beta2, args.eps, args.decoupled};
  ForEachBatch(ItemsOf(args.tensors, false), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("adam", {batch.chunks(), kBlock}, AdamKernel, batch, args.scalars, adam);
  });
  ForEachBatch(ItemsOf(args.tensors, true), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("adam", {batch.chunks(), kBlock}, AdamDoubleKernel, batch, args.scalars, adam);
  });
}

void SgdCuda(const SgdArgs& args) {
  const SgdSettings sgd{args.momentum, args.nesterov};
  ForEachBatch(ItemsOf(args.tensors, false), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("sgd", {batch.chunks(), kBlock}, SgdKernel, batch, args.scalars, sgd);
  });
  ForEachBatch(ItemsOf(args.tensors, true), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("sgd", {batch.chunks(), kBlock}, SgdDoubleKernel, batch, args.scalars, sgd);
  });
}

TESSERA_REGISTER_KERNEL(advance_step, DeviceType::kCuda, AdvanceCuda);
TESSERA_REGISTER_KERNEL(adam_update, DeviceType::kCuda, AdamCuda);
TESSERA_REGISTER_KERNEL(sgd_update, DeviceType::kCuda, SgdCuda);

}  // namespace
}  // namespace tessera::optim
