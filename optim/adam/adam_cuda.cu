// SPDX-License-Identifier: Apache-2.0
// Adam and AdamW over all parameters in a few launches, each element by the formulas (and in
// float32 the very operations) of optim/adam/adam_isa.cc.
#include "optim/adam/adam_kernel.h"
#include "optim/update_cuda.cuh"

namespace tessera::optim {
namespace {

using namespace update;  // NOLINT(google-build-using-namespace): what all updates share
using cuda::Launch;

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

void AdamCuda(const AdamArgs& args) {
  const AdamSettings adam{args.beta1, args.beta2, args.eps, args.decoupled};
  ForEachBatch(ItemsOf(args.tensors, false), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("adam", {batch.chunks(), kBlock}, AdamKernel, batch, args.scalars, adam);
  });
  ForEachBatch(ItemsOf(args.tensors, true), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("adam", {batch.chunks(), kBlock}, AdamDoubleKernel, batch, args.scalars, adam);
  });
}

TESSERA_REGISTER_KERNEL(adam_update, DeviceType::kCuda, AdamCuda);

}  // namespace
}  // namespace tessera::optim
