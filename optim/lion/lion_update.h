// SPDX-License-Identifier: Apache-2.0
// Lion's update of one element (optim/update_chunks.h says how it is applied).
#ifndef TESSERA_OPTIM_LION_LION_UPDATE_H_
#define TESSERA_OPTIM_LION_LION_UPDATE_H_

#include "core/formula.h"

namespace tessera::optim {

struct LionUpdate {
  static constexpr int kStates = 1;  // exp_avg

  double beta1;
  double beta2;

  struct Step {};
  TESSERA_FORMULA Step StepAt(double) const { return {}; }

  template <typename V>
  struct Factors {
    V decay;
    V beta1;
    V one_minus_beta1;
    V beta2;
    V one_minus_beta2;
    V lr;
  };
  template <typename V>
  TESSERA_FORMULA Factors<V> FactorsOf(const Step&, double lr, double weight_decay) const {
    using formula::Constant;
    return {Constant<V>(lr * weight_decay), Constant<V>(beta1),
            Constant<V>(1.0 - beta1),       Constant<V>(beta2),
            Constant<V>(1.0 - beta2),       Constant<V>(lr)};
  }

  // 1 or -1; zero and NaN stay what they are.
  template <typename V>
  static TESSERA_FORMULA V Sign(V x) {
    using formula::Constant, formula::Select;
    const V zero = Constant<V>(0);
    return Select(x > zero, Constant<V>(1), Select(x < zero, Constant<V>(-1), x));
  }

  template <typename V>
  static TESSERA_FORMULA void Apply(const Factors<V>& f, V grad, V* w, V* states) {
    using formula::Fma, formula::NegFma;
    *w = NegFma(f.decay, *w, *w);
    *w = NegFma(f.lr, Sign(Fma(f.beta1, states[0], f.one_minus_beta1 * grad)), *w);
    states[0] = Fma(f.beta2, states[0], f.one_minus_beta2 * grad);
  }
};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_LION_LION_UPDATE_H_
