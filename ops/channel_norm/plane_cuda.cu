// SPDX-License-Identifier: Apache-2.0
// Planes on the GPU: a block takes one.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/reduce.cuh"
#include "ops/channel_norm/plane_kernel.h"

namespace tessera::cuda {
namespace {

template <typename W>
__device__ __forceinline__ W CoefficientAt(const void* coefficients, int64_t at) {
  return coefficients == nullptr ? W(0) : static_cast<const W*>(coefficients)[at];
}

template <typename T>
__global__ void Moments(PlaneMomentsArgs args) {
  using W = Wide<T>;
  for (int64_t p = blockIdx.x; p < args.planes; p += gridDim.x) {
    const T* x = static_cast<const T*>(args.x) + p * args.n;
    W sum = 0;
    for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) sum += ToWide(x[i]);
    const W mean = BlockReduce(sum, SumOp(), W(0)) / static_cast<W>(args.n);
    W squares = 0;
    for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) {
      const W d = ToWide(x[i]) - mean;
      squares += d * d;
    }
    squares = BlockReduce(squares, SumOp(), W(0));
    if (threadIdx.x == 0) {
      static_cast<W*>(args.mean)[p] = mean;
      static_cast<W*>(args.squares)[p] = squares;
    }
  }
}

template <typename T>
__global__ void Sums(PlaneSumsArgs args) {
  using W = Wide<T>;
  for (int64_t p = blockIdx.x; p < args.planes; p += gridDim.x) {
    const T* x = static_cast<const T*>(args.x) + p * args.n;
    const T* z = static_cast<const T*>(args.z) + p * args.n;
    const W center = CoefficientAt<W>(args.center, p % args.coefficients);
    W sum = 0;
    W product = 0;
    for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) {
      sum += ToWide(z[i]);
      product += ToWide(z[i]) * (ToWide(x[i]) - center);
    }
    sum = BlockReduce(sum, SumOp(), W(0));
    product = BlockReduce(product, SumOp(), W(0));
    if (threadIdx.x == 0) {
      static_cast<W*>(args.sums)[p] = sum;
      static_cast<W*>(args.products)[p] = product;
    }
  }
}

template <typename T>
__global__ void Affine(PlaneAffineArgs args) {
  using W = Wide<T>;
  const T* x = static_cast<const T*>(args.x);
  const T* z = static_cast<const T*>(args.z);
  for (int64_t at = GridThread(); at < args.planes * args.n; at += GridThreads()) {
    const int64_t k = at / args.n % args.coefficients;
    W value = CoefficientAt<W>(args.d, k);
    if (x != nullptr) {
      value += CoefficientAt<W>(args.b, k) * (ToWide(x[at]) - CoefficientAt<W>(args.center, k));
    }
    if (z != nullptr) value += CoefficientAt<W>(args.a, k) * ToWide(z[at]);
    static_cast<T*>(args.out)[at] = FromWide<T>(value);
  }
}

void MomentsCuda(const PlaneMomentsArgs& args) {
  DispatchCudaFloat(args.dtype, "moments of planes", [&](auto zero) {
    Launch("moments of planes", {GridForRows(args.planes), ThreadsForRow(args.n, 4)},
           Moments<decltype(zero)>, args);
  });
}
void SumsCuda(const PlaneSumsArgs& args) {
  DispatchCudaFloat(args.dtype, "sums over planes", [&](auto zero) {
    Launch("sums over planes", {GridForRows(args.planes), ThreadsForRow(args.n, 4)},
           Sums<decltype(zero)>, args);
  });
}
void AffineCuda(const PlaneAffineArgs& args) {
  DispatchCudaFloat(args.dtype, "planes scaled and shifted", [&](auto zero) {
    Launch("planes scaled and shifted", {GridFor(args.planes * args.n), kThreads},
           Affine<decltype(zero)>, args);
  });
}

TESSERA_REGISTER_KERNEL(plane_moments_kernel, DeviceType::kCuda, MomentsCuda);
TESSERA_REGISTER_KERNEL(plane_sums_kernel, DeviceType::kCuda, SumsCuda);
TESSERA_REGISTER_KERNEL(plane_affine_kernel, DeviceType::kCuda, AffineCuda);

}  // namespace
}  // namespace tessera::cuda
