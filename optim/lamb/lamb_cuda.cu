// SPDX-License-Identifier: Apache-2.0
// LAMB over all parameters in a few launches. Sums are of the CPU's chunks, each added up by one
// block.
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

__device__ __forceinline__ double RateOf(const UpdateScalars& scalars, const LambItem& t) {
  return LambRate(*scalars.learning_rate * t.lr_scale, t.norms);
}

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
                  LambUpdate rule) {
  if (Skipped(scalars)) return;
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const LambItem& t = batch.items[place.tensor];
  const auto factors = rule.FactorsOf<float>(StepOf(rule, scalars), t.weight_decay);
  const auto grad_scale = static_cast<float>(GradScale(scalars));
  double weight_sum = 0;
  double update_sum = 0;
  EachOf(t, place, [&](auto count, int64_t i) {
    constexpr int kCount = decltype(count)::value;
    const Vec<float, kCount> w = ReadWeights<kCount>(t, i);
    const Vec<float, kCount> grad = Read<kCount>(t.grad_dtype, t.grad, i);
    Vec<float, kCount> m = Read<kCount>(DType::kFloat32, t.states[0], i);
    Vec<float, kCount> v = Read<kCount>(DType::kFloat32, t.states[1], i);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      DecayMoments(factors.moments, grad.v[k] * grad_scale, &m.v[k], &v.v[k]);
      const double weight = w.v[k];
      const double update = LambUpdate::Direction(factors, w.v[k], m.v[k], v.v[k]);
      weight_sum += weight * weight;
      update_sum += update * update;
    }
    WriteAs<kCount, float>(t.states[0], i, m);
    WriteAs<kCount, float>(t.states[1], i, v);
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
                LambUpdate rule) {
  if (Skipped(scalars)) return;
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const LambItem& t = batch.items[place.tensor];
  const auto factors = rule.FactorsOf<float>(StepOf(rule, scalars), t.weight_decay);
  const auto step_size = static_cast<float>(RateOf(scalars, t));
  EachOf(t, place, [&](auto count, int64_t i) {
    constexpr int kCount = decltype(count)::value;
    Vec<float, kCount> w = ReadWeights<kCount>(t, i);
    const Vec<float, kCount> m = Read<kCount>(DType::kFloat32, t.states[0], i);
    const Vec<float, kCount> v = Read<kCount>(DType::kFloat32, t.states[1], i);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      w.v[k] = fmaf(-step_size, LambUpdate::Direction(factors, w.v[k], m.v[k], v.v[k]), w.v[k]);
    }
    WriteWeights(t, i, w);
  });
}

__global__ void MomentsDoubleKernel(const __grid_constant__ TensorBatch<LambItem> batch,
                                    UpdateScalars scalars, LambUpdate rule) {
  if (Skipped(scalars)) return;
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const LambItem& t = batch.items[place.tensor];
  const auto factors = rule.FactorsOf<double>(StepOf(rule, scalars), t.weight_decay);
  const double grad_scale = GradScale(scalars);
  const double* p = static_cast<const double*>(t.param);
  double* m = static_cast<double*>(t.states[0]);
  double* v = static_cast<double*>(t.states[1]);
  double weight_sum = 0;
  double update_sum = 0;
  for (int64_t i = place.begin + threadIdx.x; i < place.begin + place.n; i += blockDim.x) {
    DecayMoments(factors.moments, ReadDouble(t.grad_dtype, t.grad, i) * grad_scale, &m[i], &v[i]);
    const double u = LambUpdate::Direction(factors, p[i], m[i], v[i]);
    weight_sum += p[i] * p[i];
    update_sum += u * u;
  }
  WriteSums(t, place, weight_sum, update_sum);
}

__global__ void ApplyDoubleKernel(const __grid_constant__ TensorBatch<LambItem> batch,
                                  UpdateScalars scalars, LambUpdate rule) {
  if (Skipped(scalars)) return;
  const ChunkPlace place = PlaceOf(batch, blockIdx.x);
  const LambItem& t = batch.items[place.tensor];
  const auto factors = rule.FactorsOf<double>(StepOf(rule, scalars), t.weight_decay);
  const double rate = RateOf(scalars, t);
  double* p = static_cast<double*>(t.param);
  const double* m = static_cast<const double*>(t.states[0]);
  const double* v = static_cast<const double*>(t.states[1]);
  for (int64_t i = place.begin + threadIdx.x; i < place.begin + place.n; i += blockDim.x) {
    p[i] -= rate * LambUpdate::Direction(factors, p[i], m[i], v[i]);
  }
}

void LambMomentsCuda(const LambArgs& args) {
  ForEachBatch(LambItemsOf(args, false), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("lamb moments", {batch.chunks(), kBlock}, MomentsKernel, batch, args.scalars, args.rule);
  });
  ForEachBatch(LambItemsOf(args, true), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("lamb moments", {batch.chunks(), kBlock}, MomentsDoubleKernel, batch, args.scalars,
           args.rule);
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
  ForEachBatch(LambItemsOf(args, false), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("lamb", {batch.chunks(), kBlock}, ApplyKernel, batch, args.scalars, args.rule);
  });
  ForEachBatch(LambItemsOf(args, true), kUpdateChunk, [&](const auto& batch, int64_t) {
    Launch("lamb", {batch.chunks(), kBlock}, ApplyDoubleKernel, batch, args.scalars, args.rule);
  });
}

TESSERA_REGISTER_KERNEL(lamb_moments, DeviceType::kCuda, LambMomentsCuda);
TESSERA_REGISTER_KERNEL(lamb_norms, DeviceType::kCuda, LambNormsCuda);
TESSERA_REGISTER_KERNEL(lamb_apply, DeviceType::kCuda, LambApplyCuda);

}  // namespace
}  // namespace tessera::optim
