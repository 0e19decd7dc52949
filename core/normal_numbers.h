// SPDX-License-Identifier: Apache-2.0
// Four standard normal numbers of four random words, the same bits on every machine and device.
//
//   double four[4];
//   NormalBlock(RandomBlock(key, block), four);
//
// By Box and Muller (1958), in float64. The library's log, sin and cos differ in their last bit
// from one processor to another; these are made of integer arithmetic and of IEEE additions,
// multiplications, divisions and square roots alone, none of them fused: on the CPU whoever
// includes this is compiled without FMA, on a GPU the intrinsics say so.
#ifndef TESSERA_CORE_NORMAL_NUMBERS_H_
#define TESSERA_CORE_NORMAL_NUMBERS_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/philox.h"

#if defined(__CUDACC__)
#define TESSERA_NORMAL_FN __device__ __forceinline__
#else
#define TESSERA_NORMAL_FN inline
#endif

namespace tessera {
namespace normal_numbers {

// One operation, rounded by itself: no compiler joins two of them.
#if defined(__CUDA_ARCH__)
TESSERA_NORMAL_FN double Times(double a, double b) { return __dmul_rn(a, b); }
TESSERA_NORMAL_FN double Plus(double a, double b) { return __dadd_rn(a, b); }
TESSERA_NORMAL_FN double Over(double a, double b) { return __ddiv_rn(a, b); }
TESSERA_NORMAL_FN double RootOf(double a) { return __dsqrt_rn(a); }
#else
TESSERA_NORMAL_FN double Times(double a, double b) { return a * b; }
TESSERA_NORMAL_FN double Plus(double a, double b) { return a + b; }
TESSERA_NORMAL_FN double Over(double a, double b) { return a / b; }
TESSERA_NORMAL_FN double RootOf(double a) { return std::sqrt(a); }
#endif

// ln((word + 0.5) / 2^32), by ln(m * 2^e) = e ln 2 + 2 atanh((m - 1) / (m + 1)) with m in
// [sqrt(1/2), sqrt(2)); the series' remainder is below 1e-17.
TESSERA_NORMAL_FN double LogOfUnit(uint32_t word) {
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  constexpr double kRoot2 = 0x1.6a09e667f3bcdp+0;
  // atanh(s) = s * sum of s^(k-1) / k over odd k, highest power first.
  constexpr double kAtanhSeries[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                                     1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
  const double value = Plus(static_cast<double>(word), 0.5);
  uint64_t bits;
  std::memcpy(&bits, &value, 8);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull;
  double m;
  std::memcpy(&m, &bits, 8);
  if (m > kRoot2) {
    m = Times(m, 0.5);
    ++exponent;
  }
  const double s = Over(Plus(m, -1.0), Plus(m, 1.0));
  const double s2 = Times(s, s);
  double series = 0.0;
  for (const double coefficient : kAtanhSeries) series = Plus(Times(series, s2), coefficient);
  return Plus(Times(exponent - 32, kLn2), Times(Times(2.0, s), series));
}

// Sine and cosine of one angle.
struct SinCos {
  double sin;
  double cos;
};

// Taylor series on [0, pi/4]; remainders below 1e-17.
TESSERA_NORMAL_FN SinCos SinCosOfEighth(double t) {
  // sin t = t (1 - t^2/(3*2) (1 - t^2/(5*4) (...))), innermost factor first, and cos t likewise.
  constexpr double kSinFactors[] = {1.0 / (17 * 16), 1.0 / (15 * 14), 1.0 / (13 * 12),
                                    1.0 / (11 * 10), 1.0 / (9 * 8),   1.0 / (7 * 6),
                                    1.0 / (5 * 4),   1.0 / (3 * 2)};
  constexpr double kCosFactors[] = {1.0 / (18 * 17), 1.0 / (16 * 15), 1.0 / (14 * 13),
                                    1.0 / (12 * 11), 1.0 / (10 * 9),  1.0 / (8 * 7),
                                    1.0 / (6 * 5),   1.0 / (4 * 3),   1.0 / (2 * 1)};
  const double t2 = Times(t, t);
  double s = 1.0;
  double c = 1.0;
  for (const double factor : kSinFactors) s = Plus(1.0, -Times(Times(factor, t2), s));
  for (const double factor : kCosFactors) c = Plus(1.0, -Times(Times(factor, t2), c));
  return {Times(t, s), c};
}

// sin and cos of 2 pi word / 2^32: the octant is exact integer arithmetic.
TESSERA_NORMAL_FN SinCos SinCosOfTurn(uint32_t word) {
  constexpr double kPi = 0x1.921fb54442d18p+1;
  const uint32_t quadrant = word >> 30;
  uint32_t rest = word & 0x3fffffffu;
  const bool upper = rest > 0x20000000u;
  if (upper) rest = 0x40000000u - rest;
  SinCos v = SinCosOfEighth(Times(rest, kPi / 2 / 0x40000000));
  if (upper) v = {v.cos, v.sin};
  switch (quadrant) {
    case 0:
      return v;
    case 1:
      return {v.cos, -v.sin};
    case 2:
      return {-v.sin, -v.cos};
    default:
      return {-v.cos, v.sin};
  }
}

// |value| < 6.8.
TESSERA_NORMAL_FN void NormalBlock(const PhiloxWords& words, double out[4]) {
  for (int pair = 0; pair < 4; pair += 2) {
    const double radius = RootOf(Times(-2.0, LogOfUnit(words.v[pair])));
    const SinCos turn = SinCosOfTurn(words.v[pair + 1]);
    out[pair] = Times(radius, turn.cos);
    out[pair + 1] = Times(radius, turn.sin);
  }
}

}  // namespace normal_numbers

using normal_numbers::NormalBlock;

}  // namespace tessera

#endif  // TESSERA_CORE_NORMAL_NUMBERS_H_
