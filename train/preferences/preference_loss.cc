// SPDX-License-Identifier: Apache-2.0
#include "train/preferences/preference_loss.h"

#include "autograd/autograd.h"
#include "base/error.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera::train {
namespace {

// Of rows, every second one from `first` on.
Tensor EverySecond(const Tensor& rows, int64_t first) {
  return Select(Reshape(rows, {rows.size(0) / 2, 2}), 1, first);
}

}  // namespace

Tensor SequenceLogProbabilities(const Tensor& token_losses) {
  TESSERA_CHECK(token_losses.ndim() == 2, "preference_loss", "losses of tokens ", token_losses,
                ", expected [rows, tokens]");
  return Neg(Sum(Cast(token_losses, DType::kFloat64), {1}));
}

CountedLoss PreferenceLoss(const Tensor& log_probabilities, const Tensor& reference,
                           const PreferenceLossOptions& options) {
  TESSERA_CHECK(log_probabilities.ndim() == 1 && log_probabilities.size(0) % 2 == 0 &&
                    reference.shape() == log_probabilities.shape() &&
                    log_probabilities.dtype() == DType::kFloat64 &&
                    reference.dtype() == DType::kFloat64,
                "preference_loss", "log-probabilities ", log_probabilities, " and reference ",
                reference, ", expected float64 [2 * pairs]");
  const Tensor rewards = Mul(Sub(log_probabilities, reference), options.beta);
  const Tensor margins = Sub(EverySecond(rewards, 0), EverySecond(rewards, 1));
  // -log sigmoid(z) = softplus(-z).
  Tensor losses = Softplus(Neg(margins));
  if (options.label_smoothing > 0) {
    losses = Add(Mul(losses, 1.0 - options.label_smoothing),
                 Mul(Softplus(margins), options.label_smoothing));
  }
  CountedLoss found;
  found.loss = Sum(losses);
  const NoGrad no_grad;
  const Tensor own = rewards.Detach();
  const Tensor log_p = log_probabilities.Detach();
  const Tensor won = Compare(margins.Detach(), 0.0, Comparison::kGreater);
  const Tensor pairs = Full({own.size(0) / 2}, 1.0, DType::kFloat64, own.device());
  // In the order of PreferenceCount.
  found.counts = Stack(
      {Sum(pairs), Sum(EverySecond(own, 0)), Sum(EverySecond(own, 1)),
       Sum(Cast(won, DType::kFloat64)), Sum(EverySecond(log_p, 0)), Sum(EverySecond(log_p, 1))},
      0);
  return found;
}

}  // namespace tessera::train
