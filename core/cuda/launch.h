// SPDX-License-Identifier: Apache-2.0
// How kernels are launched, and what a kernel sees of its launch. Included by .cu files only.
//
//   __global__ void Double(int64_t n, float* x) {
//     for (int64_t i = GridThread(); i < n; i += GridThreads()) x[i] *= 2;
//   }
//   Launch("double", {GridFor(n), kThreads}, Double, n, x);
//
// A launch runs on CurrentStream(); its arguments are copied, as CUDA does. Kernels are compiled by
// nvcc, or for the CPU (core/cuda/testing/emulation); this header, shared.cuh, tensor_core.cuh and
// sort_pairs.h are what knows of the difference.
#ifndef TESSERA_CORE_CUDA_LAUNCH_H_
#define TESSERA_CORE_CUDA_LAUNCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/cuda/runtime.h"
#include "core/cuda/shared.cuh"
#include "core/cuda/stream.h"

#if !defined(__CUDACC__)
#include "core/cuda/testing/emulation/kernel_language.h"
#endif

namespace tessera::cuda {

inline constexpr int kThreads = 256;

// Blocks for a kernel whose threads stride over n items: enough to fill the GPU, no more.
inline unsigned GridFor(int64_t n, int threads = kThreads, int blocks_per_multiprocessor = 8) {
  const int64_t needed = (n + threads - 1) / threads;
  const int64_t most = int64_t{MultiprocessorCount()} * blocks_per_multiprocessor;
  return static_cast<unsigned>(std::max<int64_t>(1, std::min(needed, most)));
}

// Blocks for a kernel whose blocks stride over rows.
inline unsigned GridForRows(int64_t rows, int blocks_per_multiprocessor = 32) {
  const int64_t most = int64_t{MultiprocessorCount()} * blocks_per_multiprocessor;
  return static_cast<unsigned>(std::max<int64_t>(1, std::min(rows, most)));
}

// Threads of a block that takes a row of n elements, `per_thread` at a time.
inline int ThreadsForRow(int64_t n, int per_thread) {
  const int64_t wanted = (n + per_thread - 1) / per_thread;
  int threads = 32;
  while (threads < wanted && threads < 512) threads *= 2;
  return threads;
}

struct LaunchShape {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;  // of DynamicShared() (shared.cuh)
};

// What a block may use of dynamic shared memory without asking for more: CUDA's limit of 48 KiB
// less what kernels declare beside it.
inline constexpr size_t kSharedBytesUnasked = 32 << 10;

// Throws Error(operation, ...) where CUDA refuses the launch, or reports what an earlier one did.
template <typename... Params, typename... Args>
void Launch(const char* operation, const LaunchShape& shape, void (*kernel)(Params...),
            const Args&... args) {
  static_assert(sizeof...(Params) == sizeof...(Args));
  if (shape.shared_bytes > kSharedBytesUnasked) {
    CheckCuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shape.shared_bytes)),
              operation);
  }
#if defined(__CUDACC__)
  kernel<<<shape.blocks, shape.threads, shape.shared_bytes, CurrentStream()>>>(args...);
#else
  emulation::LaunchKernel<Params...>({shape.blocks, shape.threads, shape.shared_bytes}, kernel,
                                     CurrentStream(), args...);
#endif
  CheckLaunch(operation);
}

// ---- In kernels -------------------------------------------------------------------------------

// The number of this thread among those of a grid of one dim, and how many there are.
__device__ __forceinline__ int64_t GridThread() {
  return int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t GridThreads() { return int64_t{gridDim.x} * blockDim.x; }

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_LAUNCH_H_
