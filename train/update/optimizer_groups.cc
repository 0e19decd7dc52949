#include "train/update/optimizer_groups.h"

#include "optim/parameter_groups.h"

namespace tessera::train {

std::vector<optim::ParameterGroup> OptimizerGroups(
    const RunConfig& config, const std::vector<optim::Parameter>& parameters) {
  return optim::SplitByDecay(parameters, {.weight_decay = config.weight_decay});
}

}  // namespace tessera::train
