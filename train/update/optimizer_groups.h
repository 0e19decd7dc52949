// Parameters in groups of equal hyperparameters, as the configuration asks.
#ifndef TESSERA_TRAIN_UPDATE_OPTIMIZER_GROUPS_H_
#define TESSERA_TRAIN_UPDATE_OPTIMIZER_GROUPS_H_

#include <vector>

#include "optim/parameter.h"
#include "train/config/run_config.h"

namespace tessera::train {

// Matrices decay, vectors do not (optim/parameter_groups.h).
std::vector<optim::ParameterGroup> OptimizerGroups(const RunConfig& config,
                                                   const std::vector<optim::Parameter>& parameters);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_UPDATE_OPTIMIZER_GROUPS_H_
