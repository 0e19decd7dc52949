// SPDX-License-Identifier: Apache-2.0
// What a kernel's source takes from nvcc, for a source that the host's compiler compiles: each
// kernel source of the project is included by a file that includes this first
// (third_party/bazel/cuda.bzl).
//
// Here is what the project's kernels use, by the CUDA programming guide: a source that uses more
// does not compile. Collectives of a warp take all of its lanes.
#ifndef TESSERA_CORE_CUDA_TESTING_EMULATION_KERNEL_LANGUAGE_H_
#define TESSERA_CORE_CUDA_TESTING_EMULATION_KERNEL_LANGUAGE_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/cuda/testing/emulation/grid.h"
#include "core/cuda/testing/emulation/work.h"

// Only core/cuda/shared.cuh has shared memory: what is filled with NaN before each block.
#undef __shared__
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

namespace tessera::cuda::emulation {

// What a launch may pass by value, on GPUs since compute capability 7.0.
inline constexpr size_t kParameterBytes = 32764;

// A launch; what is wrong with it is what cudaGetLastError says next.
template <typename... Params, typename... Args>
void LaunchKernel(const GridShape& shape, void (*kernel)(Params...), cudaStream_t stream,
                  const Args&... args) {
  static_assert((sizeof(Params) + ... + 0) <= kParameterBytes);
  EnqueueGrid(reinterpret_cast<const void*>(kernel), shape, stream,
              [kernel, values = std::tuple<std::remove_cv_t<Params>...>(args...)] {
                std::apply(kernel, values);
              });
}

}  // namespace tessera::cuda::emulation

// ---- Built-in functions -----------------------------------------------------------------------

using std::isfinite;
using std::max;
using std::min;

inline void __syncthreads() { tessera::cuda::emulation::WaitForBlock(); }
inline int __syncthreads_or(int predicate) {
  return tessera::cuda::emulation::OrOverBlock(predicate != 0 ? 1 : 0);
}

inline void __syncwarp() {
  const char nothing = 0;
  int lane = 0;
  tessera::cuda::emulation::ExchangeInWarp(&nothing, sizeof(nothing), nullptr, &lane);
}

template <typename V>
V __shfl_xor_sync(unsigned mask, V value, int lane_mask) {
  using tessera::cuda::emulation::LaneSlot;
  static_assert(std::is_trivially_copyable_v<V> && sizeof(V) <= sizeof(LaneSlot::in));
  if (mask != 0xffffffffu) {
    tessera::cuda::emulation::KernelFault("a shuffle among a part of a warp is not emulated");
  }
  int lane = 0;
  const LaneSlot* slots =
      tessera::cuda::emulation::ExchangeInWarp(&value, sizeof(V), nullptr, &lane);
  V other;
  std::memcpy(&other, slots[lane ^ lane_mask].in, sizeof(V));
  return other;
}

// Threads of a block change places at barriers only.
inline int atomicMax(int* address, int value) {
  return std::exchange(*address, std::max(*address, value));
}

inline unsigned long long atomicAdd(unsigned long long* address, unsigned long long value) {
  return std::atomic_ref(*address).fetch_add(value, std::memory_order_relaxed);
}

template <typename V>
void __stwb(V* address, V value) {
  *address = value;
}
template <typename V>
void __stcs(V* address, V value) {
  *address = value;
}

inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float normcdff(float x) { return 0.5f * std::erfc(-x * 0.70710678118654752f); }
inline double normcdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }

#endif  // TESSERA_CORE_CUDA_TESTING_EMULATION_KERNEL_LANGUAGE_H_
