// SPDX-License-Identifier: Apache-2.0
// Sine and cosine of vectors of float32, for sources that are compiled once per instruction set
// (core/cpu/simd.h).
//
// Within 2^-23 of the exact value for every finite argument, however large; NaN for infinities. The
// argument is brought to [-pi/4, pi/4] in three parts of pi/2 (W. Cody and W. Waite, "Software
// Manual for the Elementary Functions", 1980), or, above 8192, by the bits of 2/pi that matter
// (M. Payne and R. Hanek, "Radian reduction for trigonometric functions", 1983).
#ifndef TESSERA_OPS_ELEMENTWISE_SIN_COS_SIMD_H_
#define TESSERA_OPS_ELEMENTWISE_SIN_COS_SIMD_H_

#include "core/cpu/simd.h"

namespace tessera::TESSERA_ISA {

// x = quadrant * pi/2 + rest, |rest| <= pi/4; the quadrant's two lowest bits count.
struct TurnedAngle {
  VecF rest;
  VecI quadrant;
};

constexpr float kReducedBelow = 8192.0f;

// 2/pi, its binary point after the first word.
constexpr uint32_t kTwoOverPi[] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                   0xf534ddc0, 0xdb629599, 0x3c439041};

// Replaces every angle that is not below kReducedBelow by its rest, and sets its quadrant.
__attribute__((noinline, unused)) static void TurnLarge(const float* angle, float* rest,
                                                        int32_t* quadrant) {
  for (int64_t i = 0; i < kLanes; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, angle + i, 4);
    const uint32_t exponent = bits >> 23 & 0xff;
    if (exponent < 140) continue;  // below 2^13
    if (exponent == 255) {
      rest[i] = __builtin_nanf("");
      continue;
    }
    // The angle is m * 2^(exponent - 150). What of 2/pi * 2^(exponent - 150) is a multiple of 4
    // turns nothing; 64 bits from the weight of 2 on leave an error below 2^-38 of a quadrant.
    const uint64_t m = (bits & 0x7fffff) | 0x800000;
    const uint32_t first = exponent - 150 - 2 + 32;
    const uint32_t* word = kTwoOverPi + first / 32;
    const uint64_t high = uint64_t{word[0]} << 32 | word[1];
    const uint64_t window = high << first % 32 | uint64_t{word[2]} >> (32 - first % 32);
    const uint64_t quarters = m * window;
    const uint64_t whole = (quarters + (uint64_t{1} << 61)) >> 62;
    const double fraction = static_cast<double>(static_cast<int64_t>(quarters - (whole << 62)));
    const float turned = static_cast<float>(fraction * (1.57079632679489661923 * 0x1p-62));
    const bool negative = bits >> 31 != 0;
    rest[i] = negative ? -turned : turned;
    quadrant[i] = static_cast<int32_t>(negative ? 4 - whole : whole);
  }
}

TESSERA_SIMD TurnedAngle Turn(VecF x) {
  // Adding 1.5 * 2^23 rounds to an integer, which the lowest bits then hold.
  const VecF shifted = Fma(x, Set(0.636619772f), Set(12582912.0f));
  const VecF n = shifted - Set(12582912.0f);
  // The first two parts have so few bits that their products are exact without fusing, too.
  VecF rest = NegFma(n, Set(1.5703125f), x);
  rest = NegFma(n, Set(0x1.fb4p-12f), rest);
  rest = NegFma(n, Set(7.54978995e-8f), rest);
  TurnedAngle turned{rest, BitsAsInt(shifted)};
  if (!AllTrue(Abs(x) < Set(kReducedBelow))) {
    float angles[kLanes];
    float rests[kLanes];
    int32_t quadrants[kLanes];
    Store(angles, x);
    Store(rests, turned.rest);
    Store(quadrants, turned.quadrant);
    TurnLarge(angles, rests, quadrants);
    turned = {Load(rests), Load(quadrants)};
  }
  return turned;
}

// sin(x + quarters * pi/2). sin r = r + r z S(z) and cos r = 1 - z/2 + z^2 C(z) with z = r^2, S and
// C interpolated on Chebyshev nodes. Not inlined: a loop and its tail need no copies.
__attribute__((noinline, unused)) static VecF SineFrom(VecF x, int32_t quarters) {
  const TurnedAngle turned = Turn(x);
  const VecF r = turned.rest;
  const VecI quadrant = turned.quadrant + SetI(quarters);
  const VecF z = r * r;
  VecF s = Set(-0.000195873872f);
  s = Fma(s, z, Set(0.0083327461f));
  s = Fma(s, z, Set(-0.166666642f));
  const VecF sine = Fma(s * z, r, r);
  VecF c = Set(2.45474366e-05f);
  c = Fma(c, z, Set(-0.00138883002f));
  c = Fma(c, z, Set(0.0416666642f));
  const VecF cosine = Fma(c * z, z, NegFma(Set(0.5f), z, Set(1.0f)));
  const VecF value = Select(MaskOf(quadrant & SetI(1)), cosine, sine);
  return BitsAsFloat(BitsAsInt(value) ^ ShiftLeft<30>(quadrant & SetI(2)));
}

TESSERA_SIMD VecF Sin(VecF x) { return SineFrom(x, 0); }
TESSERA_SIMD VecF Cos(VecF x) { return SineFrom(x, 1); }

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_ELEMENTWISE_SIN_COS_SIMD_H_
