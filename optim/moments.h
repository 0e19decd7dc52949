// SPDX-License-Identifier: Apache-2.0
// The two moments of a gradient, which Adam and LAMB share (Kingma and Ba 2015, algorithm 1).
#ifndef TESSERA_OPTIM_MOMENTS_H_
#define TESSERA_OPTIM_MOMENTS_H_

#include "core/formula.h"

namespace tessera::optim {

// What the decay rates of the moments give at the step `count` (from 1): 1 / (1 - beta1^t) and
// 1 / sqrt(1 - beta2^t).
struct BiasCorrections {
  double inverse_bias1;
  double inverse_sqrt_bias2;
};

struct MomentDecay {
  double beta1;
  double beta2;

  TESSERA_FORMULA BiasCorrections CorrectionsAt(double count) const {
    return {1.0 / (1.0 - pow(beta1, count)), 1.0 / sqrt(1.0 - pow(beta2, count))};
  }
};

// The factors of DecayMoments in the type of its values.
template <typename V>
struct MomentFactors {
  V beta1;
  V one_minus_beta1;
  V beta2;
  V one_minus_beta2;
};

template <typename V>
TESSERA_FORMULA MomentFactors<V> MomentFactorsOf(const MomentDecay& decay) {
  using formula::Constant;
  return {Constant<V>(decay.beta1), Constant<V>(1.0 - decay.beta1), Constant<V>(decay.beta2),
          Constant<V>(1.0 - decay.beta2)};
}

// m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g * g
template <typename V>
TESSERA_FORMULA void DecayMoments(const MomentFactors<V>& f, V g, V* m, V* v) {
  using formula::Fma;
  *m = Fma(f.beta1, *m, f.one_minus_beta1 * g);
  *v = Fma(f.beta2, *v, f.one_minus_beta2 * g * g);
}

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_MOMENTS_H_
