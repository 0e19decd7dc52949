// SPDX-License-Identifier: Apache-2.0
// LAMB (You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes",
// algorithm 2): Adam's update, scaled for each parameter by the ratio of norms.
//
//   Lamb optimizer(SplitByDecay(parameters, {.weight_decay = 0.01}), {.lr = 2e-3});
//
// With g the gradient (times clip factor, over loss scale), t the step, lr the learning rate times
// the group's lr_scale and wd its weight decay:
//   m = beta1 * m + (1 - beta1) * g     v = beta2 * v + (1 - beta2) * g^2
//   u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + wd * p
//   p = p - lr * |p| / |u| * u          (the ratio is 1 where a norm is 0)
// |.| is the Euclidean norm of the whole parameter, summed in float64 in chunks of a fixed order,
// and over `Parameter::group` under tensor parallelism. States: "exp_avg", "exp_avg_sq" (m, v).
// Dtypes, master weights and steps without gradient as for Adam (optim/adam/adam.h).
#ifndef TESSERA_OPTIM_LAMB_LAMB_H_
#define TESSERA_OPTIM_LAMB_LAMB_H_

#include <vector>

#include "base/options_fwd.h"
#include "optim/multi_tensor_optimizer.h"

namespace tessera::optim {

struct LambOptions {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-6;

  static const OptionTable& Table();
};

class Lamb final : public MultiTensorOptimizer {
 public:
  using Options = LambOptions;
  static std::vector<StateKind> States(const Parameter& parameter, const Options& options);
  static bool NeedsWhole(const Parameter&, const Options&) { return true; }
  // Throws Error for options out of range, parameters over different groups, and as
  // MultiTensorOptimizer does.
  explicit Lamb(std::vector<ParameterGroup> groups, const LambOptions& options = {});

 private:
  void Update(const std::vector<PendingUpdate>& updates, const StepInputs& inputs) override;

  LambOptions options_;
};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_LAMB_LAMB_H_
