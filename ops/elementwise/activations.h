// SPDX-License-Identifier: Apache-2.0
// Activations and their gradients (`g` times the derivative) as formulas of float, double and
// vectors of float32 (core/formula.h). Their definitions: ops/elementwise/elementwise.h.
#ifndef TESSERA_OPS_ELEMENTWISE_ACTIVATIONS_H_
#define TESSERA_OPS_ELEMENTWISE_ACTIVATIONS_H_

#include "core/formula.h"

namespace tessera::formula {

// 1, -1, or 0, also of NaN.
template <typename V>
TESSERA_FORMULA V SignOf(V x) {
  const V zero = Constant<V>(0);
  return Select(x > zero, Constant<V>(1), Select(x < zero, Constant<V>(-1), zero));
}

template <typename V>
TESSERA_FORMULA V Relu(V x) {
  return Max(Constant<V>(0), x);
}
template <typename V>
TESSERA_FORMULA V ReluGrad(V g, V x) {
  return Select(x <= Constant<V>(0), Constant<V>(0), g);  // of NaN it is g
}

template <typename V>
TESSERA_FORMULA V Softplus(V x) {
  return Relu(x) + Log1p(Exp(-Abs(x)));
}

template <typename V>
TESSERA_FORMULA V Silu(V x) {
  return x * Sigmoid(x);
}
template <typename V>
TESSERA_FORMULA V SiluGrad(V g, V x) {
  const V one = Constant<V>(1);
  const V s = Sigmoid(x);
  return g * s * Fma(x, one - s, one);
}

template <typename V>
TESSERA_FORMULA V Gelu(V x) {
  return x * NormalCdf(x);
}
template <typename V>
TESSERA_FORMULA V GeluGrad(V g, V x) {
  const V density = Constant<V>(0.39894228040143267794) * Exp(Constant<V>(-0.5) * x * x);
  return g * Fma(x, density, NormalCdf(x));
}

// tanh's argument in GeluTanh; the first number is sqrt(2 / pi).
template <typename V>
TESSERA_FORMULA V GeluInner(V x) {
  return Constant<V>(0.79788456080286535588) * Fma(Constant<V>(0.044715) * x * x, x, x);
}
template <typename V>
TESSERA_FORMULA V GeluTanh(V x) {
  return Constant<V>(0.5) * x * (Constant<V>(1) + Tanh(GeluInner(x)));
}
template <typename V>
TESSERA_FORMULA V GeluTanhGrad(V g, V x) {
  const V one = Constant<V>(1);
  const V t = Tanh(GeluInner(x));
  const V cubic = Constant<V>(3) * Constant<V>(0.044715);
  const V inner = Constant<V>(0.79788456080286535588) * Fma(cubic * x, x, one);
  return g * Constant<V>(0.5) * (one + t + x * (one - t * t) * inner);
}

}  // namespace tessera::formula

#endif  // TESSERA_OPS_ELEMENTWISE_ACTIVATIONS_H_
