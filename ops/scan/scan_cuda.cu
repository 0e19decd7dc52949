// SPDX-License-Identifier: Apache-2.0
// Running sums on the GPU: a block takes a row whose elements are adjacent, tile by tile; else a
// thread takes a column.
#include <type_traits>

#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/shared.cuh"
#include "ops/scan/scan_kernel.h"

namespace tessera::cuda {
namespace {

template <typename T>
inline constexpr bool kInteger = std::is_same_v<T, int64_t>;
// Overflow wraps.
template <typename T>
using Running = std::conditional_t<kInteger<T>, uint64_t, double>;

template <typename T>
__device__ __forceinline__ Running<T> Term(T value) {
  if constexpr (kInteger<T>) {
    return static_cast<uint64_t>(value);
  } else {
    return ToWide(value);
  }
}
template <typename T>
__device__ __forceinline__ T Rounded(Running<T> value) {
  if constexpr (kInteger<T>) {
    return static_cast<T>(value);
  } else {
    return FromWide<T>(static_cast<Wide<T>>(value));
  }
}

// Where element i of a row of `count` stands when sums may run from the end.
__device__ __forceinline__ int64_t Place(int64_t i, int64_t count, bool from_end) {
  return from_end ? count - 1 - i : i;
}

template <typename T>
__global__ void CumSumColumns(AlongDim dim, bool from_end, const T* x, T* out) {
  for (int64_t c = GridThread(); c < dim.outer * dim.inner; c += GridThreads()) {
    const int64_t o = c / dim.inner;
    const int64_t first = o * dim.count * dim.inner + (c - o * dim.inner);
    Running<T> sum = 0;
    for (int64_t i = 0; i < dim.count; ++i) {
      const int64_t at = first + Place(i, dim.count, from_end) * dim.inner;
      sum += Term(x[at]);
      out[at] = Rounded<T>(sum);
    }
  }
}

// Tiles of kThreads elements; within one, every thread adds what stands 1, 2, 4, ... before its own
// (W. Hillis and G. Steele, "Data parallel algorithms", 1986).
template <typename T>
__global__ void CumSumRows(AlongDim dim, bool from_end, const T* x, T* out) {
  using Sum = Running<T>;
  auto& sums = BlockShared<Sum[2][kThreads]>();
  const int me = threadIdx.x;
  for (int64_t row = blockIdx.x; row < dim.outer; row += gridDim.x) {
    Sum before = 0;
    for (int64_t tile = 0; tile < dim.count; tile += kThreads) {
      const bool inside = tile + me < dim.count;
      const int64_t at = row * dim.count + (inside ? Place(tile + me, dim.count, from_end) : 0);
      int side = 0;
      sums[side][me] = inside ? Term(x[at]) : Sum(0);
      __syncthreads();
      for (int step = 1; step < kThreads; step *= 2) {
        const Sum add = me >= step ? sums[side][me - step] : Sum(0);
        sums[1 - side][me] = sums[side][me] + add;
        side = 1 - side;
        __syncthreads();
      }
      if (inside) out[at] = Rounded<T>(before + sums[side][me]);
      before += sums[side][kThreads - 1];
      __syncthreads();  // the last sum is read
    }
  }
}

void CumSumCuda(const CumSumArgs& args) {
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const T* x = static_cast<const T*>(args.x);
    T* out = static_cast<T*>(args.out);
    if (args.dim.inner == 1) {
      Launch("cumsum", {GridForRows(args.dim.outer), kThreads}, CumSumRows<T>, args.dim,
             args.from_end, x, out);
    } else {
      Launch("cumsum", {GridFor(args.dim.outer * args.dim.inner), kThreads}, CumSumColumns<T>,
             args.dim, args.from_end, x, out);
    }
  };
  if (args.dtype == DType::kInt64) return run(int64_t{});
  DispatchCudaFloat(args.dtype, "cumsum", run);
}

TESSERA_REGISTER_KERNEL(cumsum_kernel, DeviceType::kCuda, CumSumCuda);

}  // namespace
}  // namespace tessera::cuda
