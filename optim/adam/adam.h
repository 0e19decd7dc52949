// SPDX-License-Identifier: Apache-2.0
// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019).
//
//   AdamW optimizer(SplitByDecay(parameters, {.weight_decay = 0.1}),
//                   {.lr = 3e-4, .betas = {0.9, 0.95}});
//
// With g the gradient (times clip factor, over loss scale), t the step, lr the learning rate times
// the group's lr_scale and wd its weight decay, as PyTorch's Adam and AdamW:
//   Adam:   g = g + wd * p              AdamW:  p = p - lr * wd * p
//   m = beta1 * m + (1 - beta1) * g     v = beta2 * v + (1 - beta2) * g^2
//   p = p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// The bias corrections are computed in float64 from the step tensor, which the optimizer's steps
// share: a parameter that had no gradient in some of them is corrected as if it had (its moments
// do not decay in those). Parameters of every floating dtype; half-precision ones are the rounding
// of float32 "master" weights. Arithmetic in float32 (float64 for float64); an element's bits do
// not depend on threads or on how parameters are cut. States: "exp_avg", "exp_avg_sq".
#ifndef TESSERA_OPTIM_ADAM_ADAM_H_
#define TESSERA_OPTIM_ADAM_ADAM_H_

#include <vector>

#include "base/options_fwd.h"
#include "optim/multi_tensor_optimizer.h"

namespace tessera::optim {

struct AdamOptions {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.95};  // as GPT-3's; PyTorch's are 0.9, 0.999
  double eps = 1e-8;

  static const OptionTable& Table();
};

class Adam : public MultiTensorOptimizer {
 public:
  using Options = AdamOptions;
  static std::vector<StateKind> States(const Parameter& parameter, const Options& options);
  static bool NeedsWhole(const Parameter&, const Options&) { return false; }
  // Throws Error for options out of range, and as MultiTensorOptimizer does.
  explicit Adam(std::vector<ParameterGroup> groups, const AdamOptions& options = {});

 protected:
  Adam(std::vector<ParameterGroup> groups, const AdamOptions& options, bool decoupled);
  void Update(const std::vector<PendingUpdate>& updates, const StepInputs& inputs) override;

 private:
  AdamOptions options_;
  bool decoupled_;
};

class AdamW : public Adam {
 public:
  explicit AdamW(std::vector<ParameterGroup> groups, const AdamOptions& options = {});
};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_ADAM_ADAM_H_
