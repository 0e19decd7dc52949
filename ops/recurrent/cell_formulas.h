// SPDX-License-Identifier: Apache-2.0
// Recurrent cells of one element, and their gradients, as formulas of float, double and vectors of
// float32 (core/formula.h). Their definitions: ops/recurrent/recurrent.h. `p(k)` and `q(k)` give a
// gate's share of the input and of the state before.
#ifndef TESSERA_OPS_RECURRENT_CELL_FORMULAS_H_
#define TESSERA_OPS_RECURRENT_CELL_FORMULAS_H_

#include "core/formula.h"

namespace tessera::formula {

// s (1 - s) and 1 - t^2: the derivatives of a sigmoid that is s and of a tanh that is t.
template <typename V>
TESSERA_FORMULA V SigmoidSlope(V s) {
  return NegFma(s, s, s);
}
template <typename V>
TESSERA_FORMULA V TanhSlope(V t) {
  return NegFma(t, t, Constant<V>(1));
}

// What the gradient needs of a step; `h` is the new state.
template <typename V>
struct LstmValues {
  V i, f, g, o;
  V c;
  V h;
};
template <typename V, typename P, typename Q>
TESSERA_FORMULA LstmValues<V> LstmStep(const P& p, const Q& q, V c_before) {
  LstmValues<V> v;
  v.i = Sigmoid(p(0) + q(0));
  v.f = Sigmoid(p(1) + q(1));
  v.g = Tanh(p(2) + q(2));
  v.o = Sigmoid(p(3) + q(3));
  v.c = Fma(v.f, c_before, v.i * v.g);
  v.h = v.o * Tanh(v.c);
  return v;
}

// The gradients of the gates' sums from dh and dc, the gradients of h and c. *dc becomes the
// gradient of c_before.
template <typename V>
TESSERA_FORMULA void LstmGrad(const LstmValues<V>& v, V c_before, V dh, V* dc, V (&d_gates)[4]) {
  const V tanh_c = Tanh(v.c);
  *dc = Fma(dh * v.o, TanhSlope(tanh_c), *dc);
  d_gates[0] = *dc * v.g * SigmoidSlope(v.i);
  d_gates[1] = *dc * c_before * SigmoidSlope(v.f);
  d_gates[2] = *dc * v.i * TanhSlope(v.g);
  d_gates[3] = dh * tanh_c * SigmoidSlope(v.o);
  *dc = *dc * v.f;
}

// `qn` is q(2), the state's share of the candidate n.
template <typename V>
struct GruValues {
  V r, z, n;
  V qn;
  V h;
};
template <typename V, typename P, typename Q>
TESSERA_FORMULA GruValues<V> GruStep(const P& p, const Q& q, V h_before) {
  GruValues<V> v;
  v.r = Sigmoid(p(0) + q(0));
  v.z = Sigmoid(p(1) + q(1));
  v.qn = q(2);
  v.n = Tanh(Fma(v.r, v.qn, p(2)));
  v.h = Fma(v.z, h_before - v.n, v.n);
  return v;
}

// The gradients of p's gates. The gradients of q's gates are {d[0], d[1], d[2] * r}, and the direct
// share of h_before is dh * z.
template <typename V>
TESSERA_FORMULA void GruGrad(const GruValues<V>& v, V h_before, V dh, V (&d_gates)[3]) {
  const V dn = dh * (Constant<V>(1) - v.z) * TanhSlope(v.n);
  d_gates[0] = dn * v.qn * SigmoidSlope(v.r);
  d_gates[1] = dh * (h_before - v.n) * SigmoidSlope(v.z);
  d_gates[2] = dn;
}

}  // namespace tessera::formula

#endif  // TESSERA_OPS_RECURRENT_CELL_FORMULAS_H_
