// SPDX-License-Identifier: Apache-2.0
// The update of SGD of one element (optim/update_chunks.h says how it is applied).
#ifndef TESSERA_OPTIM_SGD_SGD_UPDATE_H_
#define TESSERA_OPTIM_SGD_SGD_UPDATE_H_

#include "core/formula.h"

namespace tessera::optim {

struct SgdUpdate {
  static constexpr int kStates = 1;  // momentum; where none is kept it is 0 and so is its factor

  double momentum;
  bool nesterov;

  struct Step {};
  TESSERA_FORMULA Step StepAt(double) const { return {}; }

  template <typename V>
  struct Factors {
    V l2;
    V momentum;
    V lr;
    bool nesterov;
  };
  template <typename V>
  TESSERA_FORMULA Factors<V> FactorsOf(const Step&, double lr, double weight_decay) const {
    using formula::Constant;
    return {Constant<V>(weight_decay), Constant<V>(momentum), Constant<V>(lr), nesterov};
  }

  template <typename V>
  static TESSERA_FORMULA void Apply(const Factors<V>& f, V grad, V* w, V* states) {
    using formula::Fma, formula::NegFma;
    const V g = Fma(f.l2, *w, grad);
    states[0] = Fma(f.momentum, states[0], g);
    *w = NegFma(f.lr, f.nesterov ? Fma(f.momentum, states[0], g) : states[0], *w);
  }
};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_SGD_SGD_UPDATE_H_
