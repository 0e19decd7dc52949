// SPDX-License-Identifier: Apache-2.0
// LAMB over all parameters in a few launches, each element by the formulas (and in float32 the very
// operations) of optim/lamb/lamb_isa.cc. Sums are of the same chunks, each added up by one block.
#include "core/cuda/reduce.cuh"
#include "optim/lamb/lamb_kernel.h"
#include "optim/update_cuda.cuh"

namespace tessera::optim {
namespace {

using namespace update;  // NOLINT(google-build-using-namespace): what all updates share
using cuda::BlockReduce;
using cuda::Launch;
using cuda::SumOp;

struct LambItem : UpdateItem {
  double* sums;   // of its chunks
  double* norms;  // its own
};

std::vector<LambItem> LambItemsOf(const LambArgs& args, bool wide) {
  std::vector<LambItem> items;
  double* sums = args.sums;
  double* norms = args.norms;
  for (const UpdateTensor& t : args.tensors) {
    for (const UpdateItem& item : ItemsOf({t}, wide)) items.push_back({item, sums, norms});
    sums += 2 * ((t.n + kUpdateChunk - 1) / kUpdateChunk);
    norms += 2;
  }
  return items;
}

struct LambSettings {
  double beta1;
  double beta2;
  double eps;
};
// What depends on the step.
struct LambStep {
  double grad_scale;
  double inverse_bias1;
  double inverse_sqrt_bias2;
  double rate;
};

__device__ __forceinline__ const LambStep& StepOf(const UpdateScalars& scalars,
                                                  const LambSettings& lamb, const LambItem& t) {
  auto& step = cuda::BlockShared<LambStep>();
  if (threadIdx.x == 0) {
    const auto count = static_cast<double>(*scalars.step);
    step.grad_scale = GradScale(scalars);
    step.inverse_bias1 = 1.0 / (1.0 - pow(lamb.beta1, count));
    step.inverse_sqrt_bias2 = 1.0 / sqrt(1.0 - pow(lamb.beta2, count));
    const double* norms = t.norms;
    const double ratio = norms[0] > 0 && norms[1] > 0 ? sqrt(norms[0] / norms[1]) : 1.0;
    step.rate = *scalars.learning_rate * t.lr_scale * ratio;
  }
  __syncthreads();
  return step;
}

struct Factors {
  float inverse_bias1;
  float inverse_sqrt_bias2;
  float eps;
  float weight_decay;
  __device__ __forceinline__ Factors(const LambStep& step, const LambSettings& lamb,
                                     const LambItem& t)
      : inverse_bias1(static_cast<float>(step.inverse_bias1)),
        inverse_sqrt_bias2(static_cast<float>(step.inverse_sqrt_bias2)),
        eps(static_cast<float>(lamb.eps)),
        weight_decay(static_cast<float>(t.weight_decay)) {}
  __device__ __forceinline__ float Update(float m, float v, float w) const {
    const float denominator = fmaf(__fsqrt_rn(v), inverse_sqrt_bias2, eps);
    return fmaf(weight_decay, w, __fdiv_rn(__fmul_rn(m, inverse_bias1), denominator));
  }
};

__device__ __forceinline__ void WriteSums(const LambItem& t, const ChunkPlace& place,
                                          double weights, double updates) {
  weights = BlockReduce(weights, SumOp(), 0.0);
  updates = BlockReduce(updates, SumOp(), 0.0);
  if (threadIdx.x == 0) {
    double* sums = t.sums + 2 * (place.begin / kUpdateChunk);
    sums[0] = weights;
    sums[1] = updates;
  }
}

__global__ void __launch_bounds__(kBlock)
    MomentsKernel(const __grid_constant__ TensorBatch<LambItem> batch, UpdateScalars scalars,
                  LambSettings lamb) {
  if (Skipped(scalars)) return;
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const LambItem& t = batch.items[place.tensor];
  const LambStep& step = StepOf(scalars, lamb, t);
  const Factors factors(step, lamb, t);
  const auto grad_scale = static_cast<float>(step.grad_scale);
  const auto beta1 = static_cast<float>(lamb.beta1);
  const auto one_minus_beta1 = static_cast<float>(1.0 - lamb.beta1);
  const auto beta2 = static_cast<float>(lamb.beta2);
  const auto one_minus_beta2 = static_cast<float>(1.0 - lamb.beta2);
  double weight_sum = 0;
  double update_sum = 0;
  EachOf(t, place, [&](auto count, int64_t i) {
    constexpr int kCount = decltype(count)::value;
    const Vec<float, kCount> w = ReadWeights<kCount>(t, i);
    const Vec<float, kCount> grad = Read<kCount>(t.grad_dtype, t.grad, i);
    Vec<float, kCount> m = Read<kCount>(DType::kFloat32, t.first, i);
    Vec<float, kCount> v = Read<kCount>(DType::kFloat32, t.second, i);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const float g = __fmul_rn(grad.v[k], grad_scale);
      m.v[k] = fmaf(beta1, m.v[k], __fmul_rn(one_minus_beta1, g));
      v.v[k] = fmaf(beta2, v.v[k], __fmul_rn(__fmul_rn(one_minus_beta2, g), g));
      const double weight = w.v[k];
      const double update = factors.Update(m.v[k], v.v[k], w.v[k]);
      weight_sum += weight * weight;
      update_sum += update * update;
    }
    WriteAs<kCount, float>(t.first, i, m);
    WriteAs<kCount, float>(t.second, i, v);
  });
  WriteSums(t, place, weight_sum, update_sum);
}

// One block a tensor.
__global__ void __launch_bounds__(kBlock)
    NormsKernel(const __grid_constant__ TensorBatch<LambItem> batch, UpdateScalars scalars) {
  if (Skipped(scalars)) return;
  const LambItem& t = batch.items[blockIdx.x];
  const int64_t chunks = (t.n + kUpdateChunk - 1) / kUpdateChunk;
  double weights = 0;
  double updates = 0;
  for (int64_t i = threadIdx.x; i < chunks; i += kBlock) {
    weights += t.sums[2 * i];
    updates += t.sums[2 * i + 1];
  }
  weights = BlockReduce(weights, SumOp(), 0.0);
  updates = BlockReduce(updates, SumOp(), 0.0);
  if (threadIdx.x == 0) {
    t.norms[0] = weights;
    t.norms[1] = updates;
  }
}

__global__ void __launch_bounds__(kBlock)
    ApplyKernel(const __grid_constant__ TensorBatch<LambItem> batch, UpdateScalars scalars,
                LambSettings lamb) {
  if (Skipped(scalars)) return;
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const LambItem& t = batch.items[place.tensor];
  const LambStep& step = StepOf(scalars, lamb, t);
  const Factors factors(step, lamb, t);
  const auto step_size = static_cast<float>(step.rate);
  EachOf(t, place, [&](auto count, int64_t i) {
    constexpr int kCount = decltype(count)::value;
    Vec<float, kCount> w = ReadWeights<kCount>(t, i);
    const Vec<float, kCount> m = Read<kCount>(DType::kFloat32, t.first, i);
    const Vec<float, kCount> v = Read<kCount>(DType::kFloat32, t.second, i);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      w.v[k] = fmaf(-step_size, factors.Update(m.v[k], v.v[k], w.v[k]), w.v[k]);
    }
    WriteWeights(t, i, w);
  });
}

__device__ __forceinline__ double DoubleUpdate(const LambItem& t, const LambStep& step,
                                               const LambSettings& lamb, int64_t i) {
  const double m = static_cast<const double*>(t.first)[i];
  const double v = static_cast<const double*>(t.second)[i];
  return m * step.inverse_bias1 / (sqrt(v) * step.inverse_sqrt_bias2 + lamb.eps) +
         t.weight_decay * static_cast<const double*>(t.param)[i];
}

__global__ void MomentsDoubleKernel(const __grid_constant__ TensorBatch<LambItem> batch,
                                    UpdateScalars scalars, LambSettings lamb) {
  if (Skipped(scalars)) return;
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const LambItem& t = batch.items[place.tensor];
  const LambStep& step = StepOf(scalars, lamb, t);
  const double* p = static_cast<const double*>(t.param);
  double* m = static_cast<double*>(t.first);
  double* v = static_cast<double*>(t.second);
  double weight_sum = 0;
  double update_sum = 0;
  for (int64_t i = place.begin + threadIdx.x; i < place.begin + place.n; i += blockDim.x) {
    const double g = ReadDouble(t.grad_dtype, t.grad, i) * step.grad_scale;
    m[i] = lamb.beta1 * m[i] + (1.0 - lamb.beta1) * g;
    v[i] = lamb.beta2 * v[i] + (1.0 - lamb.beta2) * g * g;
    const double u = DoubleUpdate(t, step, lamb, i);
    weight_sum += p[i] * p[i];
    update_sum += u * u;
  }
  WriteSums(t, place, weight_sum, update_sum);
}

__global__ void ApplyDoubleKernel(const __grid_constant__ TensorBatch<LambItem> batch,
                                  UpdateScalars scalars, LambSettings lamb) {
  if (Skipped(scalars)) return;
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const LambItem& t = batch.items[place.tensor];
  const LambStep& step = StepOf(scalars, lamb, t);
  double* p = static_cast<double*>(t.param);
  for (int64_t i = place.begin + threadIdx.x; i < place.begin + place.n; i += blockDim.x) {
    p[i] -= step.rate * DoubleUpdate(t, step, lamb, i);
  }
}

void LambMomentsCuda(const LambArgs& args) {
  const LambSettings lamb{args.beta1, args.beta2, args.eps};
  ForEachBatch(LambItemsOf(args, false), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("lamb moments", {batch.chunks(), kBlock}, MomentsKernel, batch, args.scalars, lamb);
  });
  ForEachBatch(LambItemsOf(args, true), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("lamb moments", {batch.chunks(), kBlock}, MomentsDoubleKernel, batch, args.scalars,
           lamb);
  });
}

void LambNormsCuda(const LambArgs& args) {
  for (const bool wide : {false, true}) {
    ForEachBatch(LambItemsOf(args, wide), kUpdateChunk, [&](const auto& batch, int64_t) {
      Launch("lamb norms", {static_cast<unsigned>(batch.count), kBlock}, NormsKernel, batch,
             args.scalars);
    });
  }
}

void LambApplyCuda(const LambArgs& args) {
  const LambSettings lamb{args.beta1, args.beta2, args.eps};
  ForEachBatch(LambItemsOf(args, false), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("lamb", {batch.chunks(), kBlock}, ApplyKernel, batch, args.scalars, lamb);
  });
  ForEachBatch(LambItemsOf(args, true), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("lamb", {batch.chunks(), kBlock}, ApplyDoubleKernel, batch, args.scalars, lamb);
  });
}

TESSERA_REGISTER_KERNEL(lamb_moments, DeviceType::kCuda, LambMomentsCuda);
TESSERA_REGISTER_KERNEL(lamb_norms, DeviceType::kCuda, LambNormsCuda);
TESSERA_REGISTER_KERNEL(lamb_apply, DeviceType::kCuda, LambApplyCuda);

}  // namespace
}  // namespace tessera::optim
