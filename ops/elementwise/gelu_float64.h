// SPDX-License-Identifier: Apache-2.0
// GELU and its gradients in float64. Formulas: ops/elementwise/elementwise.h.
#ifndef TESSERA_OPS_ELEMENTWISE_GELU_FLOAT64_H_
#define TESSERA_OPS_ELEMENTWISE_GELU_FLOAT64_H_

#include <cmath>

namespace tessera::float64 {

// The normal distribution function.
inline double NormalCdf(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }

// tanh's argument in GeluTanh; M_2_SQRTPI * M_SQRT1_2 is sqrt(2 / pi).
inline double GeluInner(double x) { return M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x); }

// x Phi(x), and its approximation by tanh.
inline double Gelu(double x) { return x * NormalCdf(x); }
inline double GeluTanh(double x) { return 0.5 * x * (1.0 + std::tanh(GeluInner(x))); }

// g times the derivative at x.
inline double GeluGrad(double g, double x) {
  return g * (NormalCdf(x) + x * std::exp(-0.5 * x * x) * M_SQRT1_2 * M_2_SQRTPI / 2);
}
inline double GeluTanhGrad(double g, double x) {
  const double t = std::tanh(GeluInner(x));
  const double inner = M_2_SQRTPI * M_SQRT1_2 * (1.0 + 3.0 * 0.044715 * x * x);
  return g * 0.5 * (1.0 + t + x * (1.0 - t * t) * inner);
}

}  // namespace tessera::float64

#endif  // TESSERA_OPS_ELEMENTWISE_GELU_FLOAT64_H_
