// SPDX-License-Identifier: Apache-2.0
// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2).
//
//   Lion optimizer(SplitByDecay(parameters, {.weight_decay = 1.0}), {.lr = 1e-4});
//
// With g the gradient (times clip factor, over loss scale), lr the learning rate times the group's
// lr_scale and wd its weight decay:
//   u = sign(beta1 * m + (1 - beta1) * g)
//   p = p - lr * wd * p - lr * u
//   m = beta2 * m + (1 - beta2) * g
// Learning rates are a third to a tenth of AdamW's, weight decays as much larger. Dtypes, master
// weights and bits as for Adam (optim/adam/adam.h). State: "exp_avg" (m).
#ifndef TESSERA_OPTIM_LION_LION_H_
#define TESSERA_OPTIM_LION_LION_H_

#include <vector>

#include "base/options_fwd.h"
#include "optim/multi_tensor_optimizer.h"

namespace tessera::optim {

struct LionOptions {
  double lr = 1e-4;
  std::vector<double> betas = {0.9, 0.99};

  static const OptionTable& Table();
};

class Lion final : public MultiTensorOptimizer {
 public:
  using Options = LionOptions;
  static std::vector<StateKind> States(const Parameter& parameter, const Options& options);
  static bool NeedsWhole(const Parameter&, const Options&) { return false; }
  // Throws Error for options out of range, and as MultiTensorOptimizer does.
  explicit Lion(std::vector<ParameterGroup> groups, const LionOptions& options = {});

 private:
  void Update(const std::vector<PendingUpdate>& updates, const StepInputs& inputs) override;

  LionOptions options_;
};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_LION_LION_H_
