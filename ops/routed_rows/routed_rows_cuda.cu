// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/reduce.cuh"
#include "ops/routed_rows/routed_rows_kernel.h"

namespace tessera::cuda {
namespace {

// A thread has a column of a token.
template <typename T>
__global__ void CombineKernel(CombineRowsArgs args) {
  using W = Wide<T>;
  const T* const x = static_cast<const T*>(args.x);
  const W* const weights = static_cast<const W*>(args.weights);
  T* const out = static_cast<T*>(args.out);
  const int64_t total = args.tokens * args.width;
  for (int64_t i = GridThread(); i < total; i += GridThreads()) {
    const int64_t n = i / args.width;
    const int64_t column = i - n * args.width;
    W sum = W(0);
    for (int64_t j = n * args.each; j < (n + 1) * args.each; ++j) {
      const int64_t place = args.place[j];
      if (place < 0) continue;
      const W v = ToWide(x[place * args.width + column]);
      sum += weights == nullptr ? v : weights[j] * v;
    }
    out[i] = FromWide<T>(sum);
  }
}

// A block has a choice of a token: the threads its columns.
template <typename T>
__global__ void SpreadKernel(SpreadRowsArgs args) {
  using W = Wide<T>;
  const T* const x = static_cast<const T*>(args.x);
  const T* const with = static_cast<const T*>(args.with);
  const W* const weights = static_cast<const W*>(args.weights);
  T* const rows = static_cast<T*>(args.rows);
  W* const d_weights = static_cast<W*>(args.d_weights);
  const int64_t choices = args.tokens * args.each;
  for (int64_t j = blockIdx.x; j < choices; j += gridDim.x) {
    const int64_t place = args.place[j];
    const T* const from = x + j / args.each * args.width;
    W sum = W(0);
    for (int64_t i = threadIdx.x; place >= 0 && i < args.width; i += blockDim.x) {
      const W v = ToWide(from[i]);
      rows[place * args.width + i] = FromWide<T>(weights == nullptr ? v : weights[j] * v);
      if (d_weights != nullptr) sum += v * ToWide(with[place * args.width + i]);
    }
    if (d_weights == nullptr) continue;
    sum = BlockReduce(sum, SumOp(), W(0));
    if (threadIdx.x == 0) d_weights[j] = sum;
  }
}

void CombineCuda(const CombineRowsArgs& args) {
  DispatchCudaFloat(args.dtype, "combine_rows", [&](auto zero) {
    using T = decltype(zero);
    Launch("combine_rows", {GridFor(args.tokens * args.width), kThreads}, CombineKernel<T>, args);
  });
}

void SpreadCuda(const SpreadRowsArgs& args) {
  DispatchCudaFloat(args.dtype, "spread_rows", [&](auto zero) {
    using T = decltype(zero);
    Launch("spread_rows", {GridFor(args.tokens * args.each * kThreads), kThreads}, SpreadKernel<T>,
           args);
  });
}

TESSERA_REGISTER_KERNEL(combine_rows_kernel, DeviceType::kCuda, CombineCuda);
TESSERA_REGISTER_KERNEL(spread_rows_kernel, DeviceType::kCuda, SpreadCuda);

}  // namespace
}  // namespace tessera::cuda
