// SPDX-License-Identifier: Apache-2.0
#include "optim/adam/adam.h"

#include <utility>

#include "base/options.h"
#include "optim/adam/adam_kernel.h"
#include "optim/optimizer_kind.h"
#include "optim/update_cpu.h"

namespace tessera::optim {

const OptionTable& AdamOptions::Table() {
  static const auto* table =
      new OptionTable(OptionTable::Of<AdamOptions>("Adam")
                          .Add("betas", &AdamOptions::betas, "decay rates of the two moments",
                               {.least = 0, .below = 1, .count = 2})
                          .Add("eps", &AdamOptions::eps, "added to the root of the second moment",
                               {.least = 0, .aliases = {{"adam_epsilon", "Hugging Face"}}}));
  return *table;
}

std::vector<StateKind> Adam::States(const Parameter&, const Options&) {
  return {{"exp_avg"}, {"exp_avg_sq"}};
}

Adam::Adam(std::vector<ParameterGroup> groups, const AdamOptions& options)
    : Adam(std::move(groups), options, /*decoupled=*/false) {}

Adam::Adam(std::vector<ParameterGroup> groups, const AdamOptions& options, bool decoupled)
    : MultiTensorOptimizer(std::move(groups), options.lr,
                           [&](const Parameter& p) { return States(p, options); }),
      options_(options),
      decoupled_(decoupled) {
  CheckOptions("adam", options);
}

void Adam::Update(const std::vector<PendingUpdate>& updates, const StepInputs& inputs) {
  adam_update.Launch(device(),
                     {KernelTensors(updates),
                      ScalarsOf(inputs),
                      {{options_.betas[0], options_.betas[1]}, options_.eps, decoupled_}});
}

AdamW::AdamW(std::vector<ParameterGroup> groups, const AdamOptions& options)
    : Adam(std::move(groups), options, /*decoupled=*/true) {}

TESSERA_REGISTER_KERNEL(adam_update, DeviceType::kCpu, UpdateCpu<AdamUpdate>);
TESSERA_REGISTER_OPTIMIZER(Adam, "adam", "Adam (Kingma and Ba 2015)");
TESSERA_REGISTER_OPTIMIZER(AdamW, "adamw",
                           "Adam with decoupled weight decay (Loshchilov and Hutter 2019)");

}  // namespace tessera::optim
