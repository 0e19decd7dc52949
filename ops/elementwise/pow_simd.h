// SPDX-License-Identifier: Apache-2.0
// Powers of vectors of float32, for sources that are compiled once per instruction set
// (core/cpu/simd.h).
//
// x^y as C's pow has it, infinities, zeros and negative bases included, within 0.51 ulp: the
// logarithm and the exponential are computed in float64, lane by lane, with errors below 2^-32 of
// the result.
#ifndef TESSERA_OPS_ELEMENTWISE_POW_SIMD_H_
#define TESSERA_OPS_ELEMENTWISE_POW_SIMD_H_

#include "core/cpu/simd.h"

namespace tessera::TESSERA_ISA {

// As many float64 and 64-bit integers as a VecF has lanes: two registers' worth.
typedef double WideD __attribute__((vector_size(8 * kLanes)));
typedef uint64_t WideU __attribute__((vector_size(8 * kLanes)));

// |x|^y for |x| other than 0, infinity and NaN, and finite y; anything for others.
TESSERA_SIMD void PowMagnitude(const VecF& x, const VecF& y, VecF* power) {
  const WideD a = __builtin_convertvector(Abs(x).v, WideD);
  // a = 2^k m with m in [sqrt(1/2), sqrt(2)). The exponent is counted from 1024 below, and made a
  // float64 by writing it into the mantissa of 2^52.
  const uint64_t root_half = 0x3fe6a09e667f3bcdull;
  const WideU k = ((WideU)a - root_half + (uint64_t{1024} << 52)) >> 52;
  const WideD kd = (WideD)(k | 0x4330000000000000ull) - (0x1p52 + 1024);
  const WideD m = (WideD)((WideU)a - ((k - 1024) << 52));
  // log m = 2 atanh s = 2s (1 + s^2/3 + s^4/5 + ...); |s| <= 0.172, what is left out is 2^-40.
  const WideD s = (m - 1) / (m + 1);
  const WideD z = s * s;
  WideD series = z * (1.0 / 15) + 1.0 / 13;
  series = series * z + 1.0 / 11;
  series = series * z + 1.0 / 9;
  series = series * z + 1.0 / 7;
  series = series * z + 1.0 / 5;
  series = series * z + 1.0 / 3;
  series = series * z + 1.0;
  const WideD log2 = kd + series * s * 2.88539008177792681472;  // 2 / log 2
  // 2^w, its exponent in [-160, 130], beyond which float32 is 0 or infinite.
  WideD w = log2 * __builtin_convertvector(y.v, WideD);
  const WideD least = WideD{} - 160.0;
  const WideD most = WideD{} + 130.0;
  w = w < least ? least : w;
  w = w > most ? most : w;
  const WideD shifted = w + 0x1.8p52;  // rounds to an integer
  const WideD t = (w - (shifted - 0x1.8p52)) * 0.693147180559945309417;
  // e^t for |t| <= log(2) / 2: the remainder of the series is 2^-37.
  WideD e = t * (1.0 / 362880) + 1.0 / 40320;
  e = e * t + 1.0 / 5040;
  e = e * t + 1.0 / 720;
  e = e * t + 1.0 / 120;
  e = e * t + 1.0 / 24;
  e = e * t + 1.0 / 6;
  e = e * t + 1.0 / 2;
  e = e * t + 1.0;
  e = e * t + 1.0;
  const WideD scaled = (WideD)((WideU)e + ((WideU)shifted << 52));
  power->v = __builtin_convertvector(scaled, RawF);
}

// Not inlined: a loop and its tail need no copies.
__attribute__((noinline, unused)) static VecF Pow(VecF x, VecF y) {
  const VecF infinity = Set(__builtin_inff());
  const VecF nan = Set(__builtin_nanf(""));
  const VecF one = Set(1.0f);
  const VecF a = Abs(x);
  const Mask grows = a > one;
  VecF power;
  // An infinite exponent is one that is large enough.
  PowMagnitude(x, Min(Set(3e38f), Max(Set(-3e38f), y)), &power);
  // 0 and infinity, or an infinite exponent, give one of them again.
  const Mask rises = Or(And(grows, y > Zero()), And(Not(grows), y < Zero()));
  const Mask extreme = Or(Or(a == Zero(), a == infinity), Abs(y) == infinity);
  power = Select(extreme, Select(rises, infinity, Zero()), power);
  power = Select(Or(IsNan(x), IsNan(y)), nan, power);
  // Whole exponents; from 2^24 on all are even.
  const VecF size = Min(Set(16777216.0f), Abs(y));
  const VecI count = ToInt(Select(IsNan(y), Zero(), size));
  const Mask whole = ToFloat(count) == size;
  const Mask odd = And(whole, MaskOf(count & SetI(1)));
  const Mask undefined = And(And(x<Zero(), x> - infinity), Not(whole));
  power = Select(undefined, nan, Select(odd, CopySign(power, x), power));
  power = Select(And(a == one, And(Abs(y) == infinity, Not(IsNan(y)))), one, power);
  return Select(Or(y == Zero(), x == one), one, power);
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_ELEMENTWISE_POW_SIMD_H_
