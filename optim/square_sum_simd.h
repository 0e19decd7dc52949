// SPDX-License-Identifier: Apache-2.0
// Sums of squares in float64 with the same bits from every instruction set: element i is added to
// partial sum i % kPartials, and those are joined by halves. For sources of tessera_isa_library.
#ifndef TESSERA_OPTIM_SQUARE_SUM_SIMD_H_
#define TESSERA_OPTIM_SQUARE_SUM_SIMD_H_

#include "core/cpu/simd.h"

namespace tessera::optim::TESSERA_ISA {

using namespace tessera::TESSERA_ISA;  // NOLINT(google-build-using-namespace): the vectors

constexpr int64_t kPartials = 16;

// The square of a float32 is exact in float64, so that a fused sum has the bits of two operations.
TESSERA_SIMD void AddSquares(double* sums, const double* x) {
  for (int64_t k = 0; k < kPartials; ++k) sums[k] += x[k] * x[k];
}
TESSERA_SIMD void AddSquares(double* sums, const float* x) {
  for (int64_t k = 0; k < kPartials; ++k) {
    const double value = x[k];
    sums[k] += value * value;
  }
}

template <typename T>
TESSERA_SIMD void AddSquares(double* sums, const T* x) {
  float values[kPartials];
  for (int64_t k = 0; k < kPartials; k += kLanes) Store(values + k, Load(x + k));
  AddSquares(sums, values);
}

// k with k + 8, then k + 4, ...
TESSERA_SIMD double JoinPartials(double* sums) {
  for (int64_t half = kPartials / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

}  // namespace tessera::optim::TESSERA_ISA

#endif  // TESSERA_OPTIM_SQUARE_SUM_SIMD_H_
