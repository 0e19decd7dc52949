// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with momentum (Sutskever et al. 2013), as PyTorch's SGD with
// dampening 0.
//
//   Sgd optimizer({{.parameters = parameters, .weight_decay = 1e-4}}, {.lr = 0.1, .momentum =
//   0.9});
//
//   g = g + wd * p;   b = momentum * b + g;   p = p - lr * (nesterov ? g + momentum * b : b)
// with lr the learning rate times the group's lr_scale. Dtypes, master weights and bits as for Adam
// (optim/adam/adam.h). State: "momentum", absent when the momentum is 0.
#ifndef TESSERA_OPTIM_SGD_SGD_H_
#define TESSERA_OPTIM_SGD_SGD_H_

#include <vector>

#include "base/options_fwd.h"
#include "optim/multi_tensor_optimizer.h"

namespace tessera::optim {

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0.9;
  bool nesterov = false;

  static const OptionTable& Table();
};

class Sgd final : public MultiTensorOptimizer {
 public:
  using Options = SgdOptions;
  static std::vector<StateKind> States(const Parameter& parameter, const Options& options);
  static bool NeedsWhole(const Parameter&, const Options&) { return false; }
  // Throws Error for a momentum outside [0, 1), for nesterov without momentum, and as
  // MultiTensorOptimizer does.
  explicit Sgd(std::vector<ParameterGroup> groups, const SgdOptions& options = {});

 private:
  void Update(const std::vector<PendingUpdate>& updates, const StepInputs& inputs) override;

  SgdOptions options_;
};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_SGD_SGD_H_
