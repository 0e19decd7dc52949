// SPDX-License-Identifier: Apache-2.0
// LAMB's update of one element, before the ratio of norms.
#ifndef TESSERA_OPTIM_LAMB_LAMB_UPDATE_H_
#define TESSERA_OPTIM_LAMB_LAMB_UPDATE_H_

#include "optim/moments.h"

namespace tessera::optim {

struct LambUpdate {
  MomentDecay decay;
  double eps;

  using Step = BiasCorrections;
  TESSERA_FORMULA Step StepAt(double count) const { return decay.CorrectionsAt(count); }

  template <typename V>
  struct Factors {
    MomentFactors<V> moments;
    V inverse_bias1;
    V inverse_sqrt_bias2;
    V eps;
    V weight_decay;
  };
  template <typename V>
  TESSERA_FORMULA Factors<V> FactorsOf(const Step& step, double weight_decay) const {
    using formula::Constant;
    return {MomentFactorsOf<V>(decay), Constant<V>(step.inverse_bias1),
            Constant<V>(step.inverse_sqrt_bias2), Constant<V>(eps), Constant<V>(weight_decay)};
  }

  // u of optim/lamb/lamb.h, the same operations in both passes.
  template <typename V>
  static TESSERA_FORMULA V Direction(const Factors<V>& f, V w, V m, V v) {
    using formula::Fma, formula::Sqrt;
    return Fma(f.weight_decay, w, m * f.inverse_bias1 / Fma(Sqrt(v), f.inverse_sqrt_bias2, f.eps));
  }
};

// What the update of a tensor is multiplied by: the learning rate times the ratio of its norms,
// {sum of w^2, sum of u^2}.
TESSERA_FORMULA double LambRate(double lr, const double* norms) {
  return lr * (norms[0] > 0 && norms[1] > 0 ? sqrt(norms[0] / norms[1]) : 1.0);
}

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_LAMB_LAMB_UPDATE_H_
