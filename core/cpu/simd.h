// SPDX-License-Identifier: Apache-2.0
// Vectors of the instruction set that a source is compiled for, for the CPU kernels.
//
// A kernel source is compiled once per instruction set by `tessera_isa_library`, which defines
// TESSERA_ISA (baseline, avx2, ...) and TESSERA_ISA_BASELINE, _AVX2, _AVX512 or _NEON as 1.
// The source includes this header, works on raw pointers and sits in `namespace
// tessera::TESSERA_ISA`:
//
//   namespace tessera::TESSERA_ISA {
//   void Silu(const float* x, float* y, int64_t n) {
//     ForEachVector(n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
//       VecF v = LoadN(x + i, lanes);
//       StoreN(y + i, v * Sigmoid(v), lanes);
//     });
//   }
//   }  // namespace tessera::TESSERA_ISA
//
// Everything here is `static inline` and always inlined, and includes nothing but intrinsics and
// <cstdint>: no function compiled for a newer processor can be merged with one of another source.
//
// Types (kLanes = 4, 8 or 16 floats; kLanesD = 2, 4 or 8 doubles)
//   VecF   float32, VecI  int32 of the same width, VecD  float64
//   Mask   one boolean per float lane
//   Bf16, F16   memory elements of bfloat16 and IEEE half, for Load/Store overloads: cast a
//               `const uint16_t*` (or the tensor's void*) to `const Bf16*`
// Every operation works lane by lane, so that an element's result does not depend on its lane.
//
// Memory (no alignment needed; T is float, double, Bf16, F16 or int32_t)
//   Load(p), Store(p, v)           a whole vector
//   LoadN(p, n), StoreN(p, v, n)   the first n lanes, 0 <= n <= width (more is taken as width);
//                                  other lanes are zero, other memory is not touched
//   Stores to Bf16 and F16 round to nearest even, overflow to infinity and keep NaN a NaN.
// Arithmetic
//   + - * / and unary -; Fma(a, b, c) = a*b + c; NegFma(a, b, c) = c - a*b. Both round once,
//   except in the baseline, which multiplies and adds (two roundings).
//   Min(a, b), Max(a, b): b where either is NaN. Abs, Sqrt, CopySign(magnitude, sign).
//   a < b, <=, >, >=, == : ordered comparisons, false with NaN; IsNan(a).
//   Select(mask, a, b): a where true. And, Or, Not, AnyTrue, AllTrue, FirstN(n), MaskOf(VecI) (true
//   where not zero), BitsOf(Mask) (bit i = lane i).
//   VecI: + - * & | ^ == >, ShiftLeft<k>, ShiftRight<k> (logical), ShiftRightArithmetic<k>;
//   ToInt (round to nearest even; |x| < 2^31), ToFloat, BitsAsInt, BitsAsFloat, Iota().
// Across lanes, in this fixed order: x[i] op x[i + w/2] for i < w/2, then the same on the lower
// half until one is left: ReduceAdd(v), ReduceMax(v), ReduceMin(v). Functions
// (core/cpu/simd_math.h): Exp, Log, Tanh, Erf, Sigmoid with the bounds given there.
#ifndef TESSERA_CORE_CPU_SIMD_H_
#define TESSERA_CORE_CPU_SIMD_H_

// GCC 12 reports its own headers' deliberately undefined registers when they are inlined.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#pragma GCC diagnostic pop

#include <cstdint>

#ifndef TESSERA_ISA
#error "compile sources that use core/cpu/simd.h through tessera_isa_library"
#endif

// Inlined into its caller whatever the optimiser thinks.
#define TESSERA_SIMD static inline __attribute__((always_inline))

namespace tessera::TESSERA_ISA {

// A bfloat16 in memory: the upper 16 bits of a float32.
struct Bf16 {
  uint16_t bits;
};

// An IEEE 754 binary16 in memory.
struct F16 {
  uint16_t bits;
};

}  // namespace tessera::TESSERA_ISA

#if defined(TESSERA_ISA_AVX512)
#include "core/cpu/simd_avx512.h"  // IWYU pragma: export
#elif defined(TESSERA_ISA_AVX2)
#include "core/cpu/simd_avx2.h"  // IWYU pragma: export
#elif defined(TESSERA_ISA_NEON)
#include "core/cpu/simd_neon.h"  // IWYU pragma: export
#else
#include "core/cpu/simd_baseline.h"  // IWYU pragma: export
#endif

namespace tessera::TESSERA_ISA {

TESSERA_SIMD VecF operator+(VecF a, VecF b) { return {a.v + b.v}; }
TESSERA_SIMD VecF operator-(VecF a, VecF b) { return {a.v - b.v}; }
TESSERA_SIMD VecF operator*(VecF a, VecF b) { return {a.v * b.v}; }
TESSERA_SIMD VecF operator/(VecF a, VecF b) { return {a.v / b.v}; }
TESSERA_SIMD VecD operator+(VecD a, VecD b) { return {a.v + b.v}; }
TESSERA_SIMD VecD operator-(VecD a, VecD b) { return {a.v - b.v}; }
TESSERA_SIMD VecD operator*(VecD a, VecD b) { return {a.v * b.v}; }
TESSERA_SIMD VecD operator/(VecD a, VecD b) { return {a.v / b.v}; }

TESSERA_SIMD RawU UnsignedOf(VecI a) { return reinterpret_cast<RawU>(a.v); }
TESSERA_SIMD VecI FromUnsigned(RawU v) { return {reinterpret_cast<RawI>(v)}; }

// Wraps modulo 2^32.
TESSERA_SIMD VecI operator+(VecI a, VecI b) { return FromUnsigned(UnsignedOf(a) + UnsignedOf(b)); }
TESSERA_SIMD VecI operator-(VecI a, VecI b) { return FromUnsigned(UnsignedOf(a) - UnsignedOf(b)); }
TESSERA_SIMD VecI operator*(VecI a, VecI b) { return FromUnsigned(UnsignedOf(a) * UnsignedOf(b)); }
TESSERA_SIMD VecI operator&(VecI a, VecI b) { return {a.v & b.v}; }
TESSERA_SIMD VecI operator|(VecI a, VecI b) { return {a.v | b.v}; }
TESSERA_SIMD VecI operator^(VecI a, VecI b) { return {a.v ^ b.v}; }

template <int kBits>
TESSERA_SIMD VecI ShiftLeft(VecI a) {
  return FromUnsigned(UnsignedOf(a) << kBits);
}
template <int kBits>
TESSERA_SIMD VecI ShiftRight(VecI a) {
  return FromUnsigned(UnsignedOf(a) >> kBits);
}
template <int kBits>
TESSERA_SIMD VecI ShiftRightArithmetic(VecI a) {
  return {a.v >> kBits};
}

TESSERA_SIMD VecI BitsAsInt(VecF a) { return {reinterpret_cast<RawI>(a.v)}; }
TESSERA_SIMD VecF BitsAsFloat(VecI a) { return {reinterpret_cast<RawF>(a.v)}; }

TESSERA_SIMD VecF operator-(VecF a) { return BitsAsFloat(BitsAsInt(a) ^ SetI(INT32_MIN)); }
TESSERA_SIMD VecF Abs(VecF a) { return BitsAsFloat(BitsAsInt(a) & SetI(INT32_MAX)); }
TESSERA_SIMD VecF CopySign(VecF magnitude, VecF sign) {
  return BitsAsFloat((BitsAsInt(magnitude) & SetI(INT32_MAX)) |
                     (BitsAsInt(sign) & SetI(INT32_MIN)));
}
TESSERA_SIMD Mask operator>(VecF a, VecF b) { return b < a; }
TESSERA_SIMD Mask operator>=(VecF a, VecF b) { return b <= a; }

// What core/formula.h makes its constants by.
TESSERA_SIMD VecF InEveryLane(float x, const VecF*) { return Set(x); }

// Calls body(i, lanes) for i = 0, kLanes, 2*kLanes, ... below n; lanes is kLanes but for a tail.
template <typename Body>
TESSERA_SIMD void ForEachVector(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  const int64_t left = n - i;
  if (left >= kLanes) __builtin_unreachable();
  if (left > 0) body(i, left);
}

}  // namespace tessera::TESSERA_ISA

#include "core/cpu/simd_math.h"  // IWYU pragma: export

#endif  // TESSERA_CORE_CPU_SIMD_H_
