// SPDX-License-Identifier: Apache-2.0
// SwiGLU of one element as formulas of float, double and vectors of float32 (core/formula.h).
#ifndef TESSERA_OPS_SWIGLU_SWIGLU_FORMULAS_H_
#define TESSERA_OPS_SWIGLU_SWIGLU_FORMULAS_H_

#include "ops/elementwise/activations.h"

namespace tessera::formula {

template <typename V>
TESSERA_FORMULA V SwiGlu(V gate, V up) {
  return Silu(gate) * up;
}

// grad times the derivatives.
template <typename V>
TESSERA_FORMULA void SwiGluGrad(V grad, V gate, V up, V* d_gate, V* d_up) {
  const V one = Constant<V>(1);
  const V s = Sigmoid(gate);
  *d_up = grad * (gate * s);
  *d_gate = grad * up * s * Fma(gate, one - s, one);
}

}  // namespace tessera::formula

#endif  // TESSERA_OPS_SWIGLU_SWIGLU_FORMULAS_H_
