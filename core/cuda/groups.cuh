// SPDX-License-Identifier: Apache-2.0
// Rows of adjacent elements, read by the threads of a block in groups. Included by .cu files only.
//
//   float sum = 0;
//   ForEachGroup<kVec<T>, 4>(x, n, [&]<int kCount>(int64_t i, const Vec<T, kCount>& v) {
//     for (int k = 0; k < kCount; ++k) sum += ToWide(v.v[k]);  // x[i + k]
//   });
#ifndef TESSERA_CORE_CUDA_GROUPS_CUH_
#define TESSERA_CORE_CUDA_GROUPS_CUH_

#include <cstdint>

#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"

namespace tessera::cuda {

// kWhole: where kGroup elements are aligned as one, else they are read one by one.
template <int kGroup, bool kWhole, typename T>
__device__ __forceinline__ Vec<T, kGroup> LoadGroup(const T* p) {
  if constexpr (kWhole) {
    return LoadVec<kGroup>(p);
  } else {
    Vec<T, kGroup> v;
#pragma unroll
    for (int k = 0; k < kGroup; ++k) v.v[k] = p[k];
    return v;
  }
}

// Calls f(i, x[i, i + kGroup)) for this thread's groups of x[0, n), then f(i, x[i, i + 1)) for its
// share of what is left, in an order that n and blockDim.x decide, kWhole or not. Loads kAhead
// groups before it calls f with the first: no loop that is merely unrolled does.
template <int kGroup, int kAhead, bool kWhole = true, typename T, typename F>
__device__ __forceinline__ void ForEachGroup(const T* x, int64_t n, F f) {
  const int64_t whole = n - n % kGroup;
  const int64_t step = int64_t{blockDim.x} * kGroup;
  int64_t i = int64_t{threadIdx.x} * kGroup;
  if constexpr (kAhead > 1) {
    for (; i + (kAhead - 1) * step < whole; i += kAhead * step) {
      Vec<T, kGroup> v[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) v[a] = LoadGroup<kGroup, kWhole>(x + i + a * step);
#pragma unroll
      for (int a = 0; a < kAhead; ++a) f(i + a * step, v[a]);
    }
  }
  for (; i < whole; i += step) f(i, LoadGroup<kGroup, kWhole>(x + i));
  if constexpr (kGroup > 1) {
    for (i = whole + threadIdx.x; i < n; i += blockDim.x) f(i, LoadVec<1>(x + i));
  }
}

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_GROUPS_CUH_
