// SPDX-License-Identifier: Apache-2.0
// The update of Adam and AdamW of one element (optim/update_chunks.h says how it is applied).
#ifndef TESSERA_OPTIM_ADAM_ADAM_UPDATE_H_
#define TESSERA_OPTIM_ADAM_ADAM_UPDATE_H_

#include "optim/moments.h"

namespace tessera::optim {

struct AdamUpdate {
  static constexpr int kStates = 2;  // exp_avg, exp_avg_sq

  MomentDecay decay;
  double eps;
  bool decoupled;  // AdamW's weight decay; otherwise it is added to the gradient

  using Step = BiasCorrections;
  TESSERA_FORMULA Step StepAt(double count) const { return decay.CorrectionsAt(count); }

  template <typename V>
  struct Factors {
    MomentFactors<V> moments;
    V l2;
    V decay;
    V inverse_sqrt_bias2;
    V eps;
    V step_size;
  };
  template <typename V>
  TESSERA_FORMULA Factors<V> FactorsOf(const Step& step, double lr, double weight_decay) const {
    using formula::Constant;
    return {MomentFactorsOf<V>(decay),
            Constant<V>(decoupled ? 0 : weight_decay),
            Constant<V>(decoupled ? lr * weight_decay : 0),
            Constant<V>(step.inverse_sqrt_bias2),
            Constant<V>(eps),
            Constant<V>(lr * step.inverse_bias1)};
  }

  template <typename V>
  static TESSERA_FORMULA void Apply(const Factors<V>& f, V grad, V* w, V* states) {
    using formula::Fma, formula::NegFma, formula::Sqrt;
    DecayMoments(f.moments, Fma(f.l2, *w, grad), &states[0], &states[1]);
    *w = NegFma(f.decay, *w, *w);
    *w = NegFma(f.step_size, states[0] / Fma(Sqrt(states[1]), f.inverse_sqrt_bias2, f.eps), *w);
  }
};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_ADAM_ADAM_UPDATE_H_
