// SPDX-License-Identifier: Apache-2.0
// Lion over all parameters in a few launches, each element by the formulas (and in float32 the very
// operations) of optim/lion/lion_isa.cc.
#include "optim/lion/lion_kernel.h"
#include "optim/update_cuda.cuh"

namespace tessera::optim {
namespace {

using namespace update;  // NOLINT(google-build-using-namespace): what all updates share
using cuda::Launch;

struct LionSettings {
  double beta1;
  double beta2;
};

// Zero and NaN stay what they are.
template <typename T>
__device__ __forceinline__ T Sign(T x) {
  return x > T{0} ? T{1} : x < T{0} ? T{-1} : x;
}

__global__ void __launch_bounds__(kBlock)
    LionKernel(const __grid_constant__ TensorBatch<UpdateItem> batch, UpdateScalars scalars,
               LionSettings lion) {
  if (Skipped(scalars)) return;
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const UpdateItem& t = batch.items[place.tensor];
  const double rate = *scalars.learning_rate * t.lr_scale;
  const auto grad_scale = static_cast<float>(GradScale(scalars));
  const auto decay = static_cast<float>(rate * t.weight_decay);
  const auto beta1 = static_cast<float>(lion.beta1);
  const auto one_minus_beta1 = static_cast<float>(1.0 - lion.beta1);
  const auto beta2 = static_cast<float>(lion.beta2);
  const auto one_minus_beta2 = static_cast<float>(1.0 - lion.beta2);
  const auto lr = static_cast<float>(rate);
  EachOf(t, place, [&](auto count, int64_t i) {
    constexpr int kCount = decltype(count)::value;
    Vec<float, kCount> w = ReadWeights<kCount>(t, i);
    const Vec<float, kCount> grad = Read<kCount>(t.grad_dtype, t.grad, i);
    Vec<float, kCount> m = Read<kCount>(DType::kFloat32, t.first, i);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const float g = __fmul_rn(grad.v[k], grad_scale);
      w.v[k] = fmaf(-decay, w.v[k], w.v[k]);
      w.v[k] = fmaf(-lr, Sign(fmaf(beta1, m.v[k], __fmul_rn(one_minus_beta1, g))), w.v[k]);
      m.v[k] = fmaf(beta2, m.v[k], __fmul_rn(one_minus_beta2, g));
    }
    WriteAs<kCount, float>(t.first, i, m);
    WriteWeights(t, i, w);
  });
}

__global__ void LionDoubleKernel(const __grid_constant__ TensorBatch<UpdateItem> batch,
                                 UpdateScalars scalars, LionSettings lion) {
  if (Skipped(scalars)) return;
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const UpdateItem& t = batch.items[place.tensor];
  const double lr = *scalars.learning_rate * t.lr_scale;
  const double grad_scale = GradScale(scalars);
  double* p = static_cast<double*>(t.param);
  double* m = static_cast<double*>(t.first);
  for (int64_t i = place.begin + threadIdx.x; i < place.begin + place.n; i += blockDim.x) {
    const double g = ReadDouble(t.grad_dtype, t.grad, i) * grad_scale;
    p[i] -= lr * t.weight_decay * p[i];
    p[i] -= lr * Sign(lion.beta1 * m[i] + (1.0 - lion.beta1) * g);
    m[i] = lion.beta2 * m[i] + (1.0 - lion.beta2) * g;
  }
}

void LionCuda(const LionArgs& args) {
  const LionSettings lion{args.beta1, args.beta2};
  ForEachBatch(ItemsOf(args.tensors, false), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("lion", {batch.chunks(), kBlock}, LionKernel, batch, args.scalars, lion);
  });
  ForEachBatch(ItemsOf(args.tensors, true), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("lion", {batch.chunks(), kBlock}, LionDoubleKernel, batch, args.scalars, lion);
  });
}

TESSERA_REGISTER_KERNEL(lion_update, DeviceType::kCuda, LionCuda);

}  // namespace
}  // namespace tessera::optim
