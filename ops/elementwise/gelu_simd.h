// SPDX-License-Identifier: Apache-2.0
// GELU and its gradients on vectors of float32, for sources that are compiled once per instruction
// set (core/cpu/simd.h). Formulas: ops/elementwise/elementwise.h.
#ifndef TESSERA_OPS_ELEMENTWISE_GELU_SIMD_H_
#define TESSERA_OPS_ELEMENTWISE_GELU_SIMD_H_

#include "core/cpu/simd.h"

namespace tessera::TESSERA_ISA {

constexpr float kSqrtHalf = 0.70710678118654752f;
constexpr float kInvSqrt2Pi = 0.39894228040143268f;
constexpr float kSqrt2OverPi = 0.79788456080286536f;
constexpr float kGeluCubic = 0.044715f;

TESSERA_SIMD VecF NormalCdf(VecF x) { return Set(0.5f) * (Set(1.0f) + Erf(x * Set(kSqrtHalf))); }

// tanh's argument in GeluTanh.
TESSERA_SIMD VecF GeluInner(VecF x) {
  return Set(kSqrt2OverPi) * Fma(Set(kGeluCubic) * x * x, x, x);
}

TESSERA_SIMD VecF Gelu(VecF x) { return x * NormalCdf(x); }

TESSERA_SIMD VecF GeluTanh(VecF x) { return Set(0.5f) * x * (Set(1.0f) + Tanh(GeluInner(x))); }

// g times the derivative at x.
TESSERA_SIMD VecF GeluGrad(VecF g, VecF x) {
  const VecF density = Set(kInvSqrt2Pi) * Exp(Set(-0.5f) * x * x);
  return g * Fma(x, density, NormalCdf(x));
}

TESSERA_SIMD VecF GeluTanhGrad(VecF g, VecF x) {
  const VecF t = Tanh(GeluInner(x));
  const VecF inner = Set(kSqrt2OverPi) * Fma(Set(3.0f * kGeluCubic) * x, x, Set(1.0f));
  const VecF tail = x * (Set(1.0f) - t * t) * inner;
  return g * Set(0.5f) * (Set(1.0f) + t + tail);
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_ELEMENTWISE_GELU_SIMD_H_
