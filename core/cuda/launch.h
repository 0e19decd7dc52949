// How kernels are launched: sizes of grids, the stream, and the check behind.
//
//   Kernel<<<GridFor(n, kThreads), kThreads, 0, CurrentStream()>>>(...);
//   CheckLaunch("softmax");
#ifndef TESSERA_CORE_CUDA_LAUNCH_H_
#define TESSERA_CORE_CUDA_LAUNCH_H_

#include <algorithm>
#include <cstdint>

#include "core/cuda/runtime.h"
#include "core/cuda/stream.h"

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

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_LAUNCH_H_
