// SPDX-License-Identifier: Apache-2.0
#include "optim/lion/lion.h"

#include <utility>

#include "base/options.h"
#include "optim/lion/lion_kernel.h"
#include "optim/optimizer_kind.h"
#include "optim/update_cpu.h"

namespace tessera::optim {

const OptionTable& LionOptions::Table() {
  static const auto* table = new OptionTable(OptionTable::Of<LionOptions>("Lion").Add(
      "betas", &LionOptions::betas,
      "shares of the momentum in the update, and in the next momentum",
      {.least = 0, .below = 1, .count = 2}));
  return *table;
}

std::vector<StateKind> Lion::States(const Parameter&, const Options&) { return {{"exp_avg"}}; }

Lion::Lion(std::vector<ParameterGroup> groups, const LionOptions& options)
    : MultiTensorOptimizer(std::move(groups), options.lr,
                           [&](const Parameter& p) { return States(p, options); }),
      options_(options) {
  CheckOptions("lion", options);
}

void Lion::Update(const std::vector<PendingUpdate>& updates, const StepInputs& inputs) {
  lion_update.Launch(
      device(),
      {KernelTensors(updates), ScalarsOf(inputs), {options_.betas[0], options_.betas[1]}});
}

TESSERA_REGISTER_KERNEL(lion_update, DeviceType::kCpu, UpdateCpu<LionUpdate>);
TESSERA_REGISTER_OPTIMIZER(Lion, "lion", "Lion: the sign of a momentum (Chen et al. 2023)");

}  // namespace tessera::optim
