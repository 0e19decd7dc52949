// SPDX-License-Identifier: Apache-2.0
// The losses of one pair of numbers, for float64 on the CPU and for CUDA. `M` has the functions
// Exp, Log, Log1p and Abs of a number.
#ifndef TESSERA_OPS_LOSS_LOSS_SCALAR_H_
#define TESSERA_OPS_LOSS_LOSS_SCALAR_H_

#include "ops/loss/loss_rows.h"

#if defined(__CUDACC__)
#define TESSERA_LOSS_FN __device__ __forceinline__
#else
#define TESSERA_LOSS_FN inline
#endif

namespace tessera {

template <typename M, typename W>
TESSERA_LOSS_FN W LossOf(PairLoss loss, W p, W x, W t) {
  const W d = x - t;
  const W distance = M::Abs(d);
  switch (loss) {
    case PairLoss::kSquare:
      return d * d;
    case PairLoss::kAbs:
      return distance;
    case PairLoss::kHuber:
      return distance > p ? p * (distance - W(0.5) * p) : W(0.5) * d * d;
    case PairLoss::kLogits:
      return (x < 0 ? W(0) : x) - x * t + M::Log1p(M::Exp(-M::Abs(x)));
    case PairLoss::kDivergence:
      return t == 0 ? W(0) : t * (M::Log(t) - x);
    case PairLoss::kLogDivergence:
      return M::Exp(t) * (t - x);
  }
  return x;
}

// The derivative by x.
template <typename M, typename W>
TESSERA_LOSS_FN W LossSlope(PairLoss loss, W p, W x, W t) {
  const W d = x - t;
  switch (loss) {
    case PairLoss::kSquare:
      return d + d;
    case PairLoss::kAbs:
      return d > 0 ? W(1) : d < 0 ? W(-1) : W(0);
    case PairLoss::kHuber:
      return d > p ? p : d < -p ? -p : d;
    case PairLoss::kLogits:
      return W(1) / (W(1) + M::Exp(-x)) - t;
    case PairLoss::kDivergence:
      return -t;
    case PairLoss::kLogDivergence:
      return -M::Exp(t);
  }
  return x;
}

// By the target.
template <typename M, typename W>
TESSERA_LOSS_FN W LossTargetSlope(PairLoss loss, W p, W x, W t) {
  switch (loss) {
    case PairLoss::kSquare:
    case PairLoss::kAbs:
    case PairLoss::kHuber:
      return -LossSlope<M>(loss, p, x, t);
    case PairLoss::kLogits:
      return -x;
    case PairLoss::kDivergence:
      return t == 0 ? W(0) : M::Log(t) - x + W(1);
    case PairLoss::kLogDivergence:
      return M::Exp(t) * (t - x + W(1));
  }
  return x;
}

}  // namespace tessera

#endif  // TESSERA_OPS_LOSS_LOSS_SCALAR_H_
