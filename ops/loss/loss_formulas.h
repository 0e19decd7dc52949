// SPDX-License-Identifier: Apache-2.0
// The losses of one prediction `x` and its target `t` as formulas of float, double and vectors of
// float32 (core/formula.h). `p` is the loss's parameter, Huber's delta.
#ifndef TESSERA_OPS_LOSS_LOSS_FORMULAS_H_
#define TESSERA_OPS_LOSS_LOSS_FORMULAS_H_

#include "ops/elementwise/activations.h"
#include "ops/loss/loss_rows.h"

namespace tessera::formula {

template <typename V>
TESSERA_FORMULA V LossOf(PairLoss loss, V p, V x, V t) {
  const V half = Constant<V>(0.5);
  const V zero = Constant<V>(0);
  const V distance = Abs(x - t);
  switch (loss) {
    case PairLoss::kSquare:
      return distance * distance;
    case PairLoss::kAbs:
      return distance;
    case PairLoss::kHuber:
      return Select(distance > p, p * NegFma(half, p, distance), half * distance * distance);
    case PairLoss::kLogits:
      return NegFma(x, t, Relu(x)) + Log1p(Exp(-Abs(x)));
    case PairLoss::kDivergence:
      return Select(t == zero, zero, t * (Log(t) - x));
    case PairLoss::kLogDivergence:
      return Exp(t) * (t - x);
  }
  return x;
}

// The derivative by x.
template <typename V>
TESSERA_FORMULA V LossSlope(PairLoss loss, V p, V x, V t) {
  const V d = x - t;
  switch (loss) {
    case PairLoss::kSquare:
      return d + d;
    case PairLoss::kAbs:
      return SignOf(d);
    case PairLoss::kHuber:
      return Max(-p, Min(p, d));
    case PairLoss::kLogits:
      return Sigmoid(x) - t;
    case PairLoss::kDivergence:
      return -t;
    case PairLoss::kLogDivergence:
      return -Exp(t);
  }
  return x;
}

// By the target.
template <typename V>
TESSERA_FORMULA V LossTargetSlope(PairLoss loss, V p, V x, V t) {
  const V one = Constant<V>(1);
  const V zero = Constant<V>(0);
  switch (loss) {
    case PairLoss::kSquare:
    case PairLoss::kAbs:
    case PairLoss::kHuber:
      return -LossSlope(loss, p, x, t);
    case PairLoss::kLogits:
      return -x;
    case PairLoss::kDivergence:
      return Select(t == zero, zero, Log(t) - x + one);
    case PairLoss::kLogDivergence:
      return Exp(t) * (t - x + one);
  }
  return x;
}

}  // namespace tessera::formula

#endif  // TESSERA_OPS_LOSS_LOSS_FORMULAS_H_
