// SPDX-License-Identifier: Apache-2.0
// Vectors of elements that stand apart. For sources of tessera_isa_library.
#ifndef TESSERA_OPS_CONVOLUTION_STEPPED_LOAD_SIMD_H_
#define TESSERA_OPS_CONVOLUTION_STEPPED_LOAD_SIMD_H_

#include "core/cpu/simd.h"

namespace tessera::TESSERA_ISA {

// src[0], src[2], ...: the first n lanes, 1 <= n (more is taken as the width). Nothing behind the
// last of them is read.
template <typename T>
TESSERA_SIMD VecF LoadEverySecond(const T* src, int64_t n) {
  VecI even;
  for (int i = 0; i < kLanes; ++i) even.v[i] = 2 * i;
  const int64_t needed = 2 * n - 1;
  const VecF low = LoadN(src, needed);
  const VecF high = needed > kLanes ? LoadN(src + kLanes, needed - kLanes) : Zero();
  return {__builtin_shuffle(low.v, high.v, even.v)};
}

// src[0], src[step], ...: likewise.
template <typename T>
TESSERA_SIMD VecF LoadStepped(const T* src, int64_t step, int64_t n) {
  if (step == 1) return LoadN(src, n);
  if (step == 2) return LoadEverySecond(src, n < kLanes ? n : kLanes);
  VecF v = Zero();
  for (int64_t i = 0; i < kLanes && i < n; ++i) v.v[i] = LoadN(src + i * step, 1).v[0];
  return v;
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_CONVOLUTION_STEPPED_LOAD_SIMD_H_
