// SPDX-License-Identifier: Apache-2.0
// Reductions over a warp and a block, in one fixed order: a tree over lanes, then over warps.
// Included by .cu files only.
#ifndef TESSERA_CORE_CUDA_REDUCE_CUH_
#define TESSERA_CORE_CUDA_REDUCE_CUH_

#include <cstdint>

#include "core/cuda/shared.cuh"

namespace tessera::cuda {

struct SumOp {
  template <typename V>
  __device__ __forceinline__ V operator()(V a, V b) const {
    return a + b;
  }
};
// NaN wins, as in a maximum that is to show it.
struct MaxOp {
  template <typename V>
  __device__ __forceinline__ V operator()(V a, V b) const {
    return a != a ? a : (b != b ? b : (a > b ? a : b));
  }
};

// The value of the lane whose number differs in the bits of `mask`. What is more than one number
// has an overload beside its type.
template <typename V>
__device__ __forceinline__ V ShuffleXor(V value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

// Every lane gets the result.
template <typename V, typename Op>
__device__ __forceinline__ V WarpReduce(V value, Op op) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    value = op(value, ShuffleXor(value, lane));
  }
  return value;
}

inline constexpr int kOfReduction = -1;  // its BlockShared

// Every thread gets the result. blockDim.x is a multiple of 32, at most 1024, and all of its
// threads call this. `identity` changes nothing.
template <typename V, typename Op>
__device__ __forceinline__ V BlockReduce(V value, Op op, V identity) {
  auto& partial = BlockShared<V[32], kOfReduction>();
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warps = blockDim.x / 32;
  value = WarpReduce(value, op);
  if (warps == 1) return value;
  __syncthreads();  // those of the last call are read
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = lane < warps ? partial[lane] : identity;
  return WarpReduce(value, op);
}

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_REDUCE_CUH_
