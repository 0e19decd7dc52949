// SPDX-License-Identifier: Apache-2.0
// SGD over all parameters in a few launches, each element by the formulas (and in float32 the
// very operations) of optim/sgd/sgd_isa.cc.
#include "optim/sgd/sgd_kernel.h"
#include "optim/update_cuda.cuh"

namespace tessera::optim {
namespace {

using namespace update;  // NOLINT(google-build-using-namespace): what all updates share
using cuda::Launch;

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

void SgdCuda(const SgdArgs& args) {
  const SgdSettings sgd{args.momentum, args.nesterov};
  ForEachBatch(ItemsOf(args.tensors, false), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("sgd", {batch.chunks(), kBlock}, SgdKernel, batch, args.scalars, sgd);
  });
  ForEachBatch(ItemsOf(args.tensors, true), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("sgd", {batch.chunks(), kBlock}, SgdDoubleKernel, batch, args.scalars, sgd);
  });
}

TESSERA_REGISTER_KERNEL(sgd_update, DeviceType::kCuda, SgdCuda);

}  // namespace
}  // namespace tessera::optim
