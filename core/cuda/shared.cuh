// SPDX-License-Identifier: Apache-2.0
// The shared memory of a block, uninitialised. Included by .cu files only.
//
//   auto& rows = BlockShared<float[8][32]>();
//   float* tile = DynamicShared<float>();       // as much as the launch asked for
#ifndef TESSERA_CORE_CUDA_SHARED_CUH_
#define TESSERA_CORE_CUDA_SHARED_CUH_

#if !defined(__CUDACC__)
#include "core/cuda/testing/emulation/grid.h"
#endif

namespace tessera::cuda {

// A variable that the threads of a block share: in a kernel one per type and number.
template <typename T, int kNumber = 0>
__device__ __forceinline__ T& BlockShared() {
#if defined(__CUDACC__)
  __shared__ T variable;
  return variable;
#else
  static T* const variable = static_cast<T*>(emulation::ReserveShared(sizeof(T), alignof(T)));
  return *variable;
#endif
}

// The memory of LaunchShape::shared_bytes, aligned to 16 bytes.
template <typename T>
__device__ __forceinline__ T* DynamicShared() {
#if defined(__CUDACC__)
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  return reinterpret_cast<T*>(dynamic_shared);
#else
  return static_cast<T*>(emulation::DynamicShared());
#endif
}

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_SHARED_CUH_
