// SPDX-License-Identifier: Apache-2.0
// Logarithms near 1 of vectors of float32, for sources that are compiled once per instruction set
// (core/cpu/simd.h).
#ifndef TESSERA_OPS_ELEMENTWISE_LOG1P_SIMD_H_
#define TESSERA_OPS_ELEMENTWISE_LOG1P_SIMD_H_

#include "core/cpu/simd.h"

namespace tessera::TESSERA_ISA {

// log(1 + x), 3 ulp: what rounding took from 1 + x is in the quotient (W. Kahan). Not inlined: a
// loop and its tail need no copies.
[[maybe_unused]] __attribute__((noinline)) static VecF Log1p(VecF x) {
  const VecF one = Set(1.0f);
  const VecF sum = one + x;
  const VecF y = Log(sum) * (x / (sum - one));
  return Select(sum == one, x, Select(x == Set(__builtin_inff()), x, y));
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_ELEMENTWISE_LOG1P_SIMD_H_
