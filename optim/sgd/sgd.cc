// SPDX-License-Identifier: Apache-2.0
#include "optim/sgd/sgd.h"

#include <utility>

#include "base/options.h"
#include "optim/optimizer_kind.h"
#include "optim/sgd/sgd_kernel.h"
#include "optim/update_cpu.h"

namespace tessera::optim {

const OptionTable& SgdOptions::Table() {
  static const auto* table = new OptionTable(
      OptionTable::Of<SgdOptions>("SGD")
          .Add("momentum", &SgdOptions::momentum, "decay rate of the sum of gradients",
               {.least = 0, .below = 1, .neutral = 0})
          .Add("nesterov", &SgdOptions::nesterov, "look one step of the momentum ahead"));
  return *table;
}

std::vector<StateKind> Sgd::States(const Parameter&, const Options& options) {
  if (options.momentum == 0) return {};
  return {{"momentum"}};
}

Sgd::Sgd(std::vector<ParameterGroup> groups, const SgdOptions& options)
    : MultiTensorOptimizer(std::move(groups), options.lr,
                           [&](const Parameter& p) { return States(p, options); }),
      options_(options) {
  CheckOptions("sgd", options);
  TESSERA_CHECK(!options.nesterov || options.momentum > 0, "sgd", "nesterov without momentum");
}

void Sgd::Update(const std::vector<PendingUpdate>& updates, const StepInputs& inputs) {
  sgd_update.Launch(
      device(),
      {KernelTensors(updates), ScalarsOf(inputs), {options_.momentum, options_.nesterov}});
}

TESSERA_REGISTER_KERNEL(sgd_update, DeviceType::kCpu, UpdateCpu<SgdUpdate>);
TESSERA_REGISTER_OPTIMIZER(Sgd, "sgd", "stochastic gradient descent with momentum");

}  // namespace tessera::optim
