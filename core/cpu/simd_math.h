// SPDX-License-Identifier: Apache-2.0
// Elementary functions on VecF. Included by core/cpu/simd.h only.
//
// Bounds, over all float32 arguments, against the exact value (ulp = unit in the last place of the
// float32 result; simd_test.cc checks them for each instruction set):
//   Exp(x)      2 ulp, subnormal results included; 0 below -103.98, infinity above 88.73
//   Log(x)      2 ulp, subnormal arguments included; Log(0) = -inf, NaN for x < 0
//   Tanh(x)     2 ulp; odd; Tanh(+-inf) = +-1
//   Sigmoid(x)  3 ulp: 1 / (1 + e^-x), without overflow, relative accuracy kept towards 0
//   Erf(x)      2 ulp (absolute error below 1e-7); odd; Erf(+-inf) = +-1
// NaN gives NaN. Polynomials are minimax fits (Lawson iteration on Chebyshev nodes, coefficients
// rounded to float32 one by one) of the forms that are above each function.
#ifndef TESSERA_CORE_CPU_SIMD_MATH_H_
#define TESSERA_CORE_CPU_SIMD_MATH_H_

#include <cstdint>

namespace tessera::TESSERA_ISA {

// x * 2^n for integral n in [-252, 254], rounded once.
TESSERA_SIMD VecF ScaleByPowerOfTwo(VecF x, VecF n) {
#if defined(TESSERA_ISA_AVX512)
  return {_mm512_scalef_ps(x.v, n.v)};
#else
  const VecI whole = ToInt(n);
  const VecI half = ShiftRightArithmetic<1>(whole);
  const VecF first = BitsAsFloat(ShiftLeft<23>(half + SetI(127)));
  const VecF second = BitsAsFloat(ShiftLeft<23>(whole - half + SetI(127)));
  return x * first * second;
#endif
}

// x = n ln2 + r with |r| <= ln2 / 2; e^r = 1 + (r + r^2 P(r)).
TESSERA_SIMD VecF Exp(VecF x) {
  // The bound comes first in Min and Max, so that NaN passes.
  const VecF clamped = Max(Set(-105.0f), Min(Set(89.5f), x));
  // Adding 1.5 * 2^23 rounds to an integer.
  const VecF shifted = Fma(clamped, Set(1.44269504f), Set(12582912.0f));
  const VecF nf = shifted - Set(12582912.0f);
  VecF r = NegFma(nf, Set(0.693359375f), clamped);  // ln2 in two parts; the first has 10 bits
  r = NegFma(nf, Set(-2.12194440e-4f), r);
  VecF p = Set(0.00138210331f);
  p = Fma(p, r, Set(0.00836867187f));
  p = Fma(p, r, Set(0.0416682623f));
  p = Fma(p, r, Set(0.166665211f));
  p = Fma(p, r, Set(0.49999994f));
  p = Fma(p * r, r, r) + Set(1.0f);
  return ScaleByPowerOfTwo(p, nf);
}

// x = 2^k m with m in [sqrt(1/2), sqrt(2)); s = (m - 1) / (m + 1); log m = 2s + s^3 R(s^2), written
// as f - (f^2/2 - s (f^2/2 + s^2 R)) with f = m - 1.
TESSERA_SIMD VecF Log(VecF x) {
  const Mask subnormal = x < Set(1.17549435e-38f);
  const VecF scaled = Select(subnormal, x * Set(8388608.0f), x);
  const VecI offset = BitsAsInt(scaled) - SetI(0x3f3504f3);  // bits of sqrt(1/2)
  const VecI k = ShiftRightArithmetic<23>(offset);
  const VecF m = BitsAsFloat((offset & SetI(0x7fffff)) + SetI(0x3f3504f3));
  const VecF kf = ToFloat(k) - Select(subnormal, Set(23.0f), Zero());
  const VecF f = m - Set(1.0f);
  const VecF s = f / (m + Set(1.0f));
  const VecF z = s * s;
  VecF r = Set(0.242799982f);
  r = Fma(r, z, Set(0.284987658f));
  r = Fma(r, z, Set(0.400009722f));
  r = Fma(r, z, Set(0.666666627f)) * z;
  const VecF half_square = Set(0.5f) * f * f;
  const VecF low = Fma(s, half_square + r, kf * Set(-2.12194440e-4f));
  VecF y = Fma(kf, Set(0.693359375f), (low - half_square) + f);
  y = Select(x == Set(__builtin_inff()), x, y);
  y = Select(x == Zero(), Set(-__builtin_inff()), y);
  return Select(Or(x < Zero(), IsNan(x)), Set(__builtin_nanf("")), y);
}

// |x| < 0.625: x + x z P(z), z = x^2. Otherwise 1 - 2 / (e^(2|x|) + 1).
TESSERA_SIMD VecF Tanh(VecF x) {
  const VecF a = Abs(x);
  const VecF z = x * x;
  VecF p = Set(-0.00569722708f);
  p = Fma(p, z, Set(0.0206318367f));
  p = Fma(p, z, Set(-0.0537373647f));
  p = Fma(p, z, Set(0.133314118f));
  p = Fma(p, z, Set(-0.333332807f));
  const VecF small = Fma(p * z, a, a);
  const VecF large = Set(1.0f) - Set(2.0f) / (Exp(a + a) + Set(1.0f));
  return CopySign(Select(a < Set(0.625f), small, large), x);
}

TESSERA_SIMD VecF Sigmoid(VecF x) {
  const VecF e = Exp(-Abs(x));
  return Select(x >= Zero(), Set(1.0f), e) / (Set(1.0f) + e);
}

// |x| < 0.93: x + x P(x^2). Otherwise 1 - e^(-|x| + |x| Q(|x|)), the exponent a fit of log(erfc).
TESSERA_SIMD VecF Erf(VecF x) {
  // Erf is 1 in float32 from 3.92 on; the clamp keeps the fit in its range and lets NaN pass.
  const VecF t = Min(Set(4.0f), Abs(x));
  const VecF z = t * t;
  VecF p = Set(-0.000595958962f);
  p = Fma(p, z, Set(0.00498735299f));
  p = Fma(p, z, Set(-0.0267629661f));
  p = Fma(p, z, Set(0.11281731f));
  p = Fma(p, z, Set(-0.376124889f));
  p = Fma(p, z, Set(0.128379151f));
  const VecF small = Fma(p, x, x);
  VecF q = Set(-1.1230014e-05f);
  q = Fma(q, t, Set(0.000322794018f));
  q = Fma(q, t, Set(-0.0036424296f));
  q = Fma(q, t, Set(0.0237620194f));
  q = Fma(q, t, Set(-0.106236845f));
  q = Fma(q, t, Set(-0.635151327f));
  q = Fma(q, t, Set(-0.12864849f));
  const VecF large = Set(1.0f) - Exp(Fma(q, t, -t));
  return Select(t < Set(0.93f), small, CopySign(large, x));
}

// The distribution function of the standard normal distribution.
TESSERA_SIMD VecF NormalCdf(VecF x) {
  return Set(0.5f) * (Set(1.0f) + Erf(x * Set(0.70710678118654752f)));
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_CORE_CPU_SIMD_MATH_H_
