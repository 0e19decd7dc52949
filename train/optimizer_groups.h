// Parameters in groups of equal hyperparameters, as the configuration asks.
#ifndef TESSERA_TRAIN_OPTIMIZER_GROUPS_H_
#define TESSERA_TRAIN_OPTIMIZER_GROUPS_H_

#include <vector>

#include "optim/parameter.h"
#include "train/config/run_config.h"

namespace tessera::train {

// Matrices decay, vectors do not (optim/parameter_groups.h). With `scale_parameter` a group for
// each parameter, its learning rate times the root mean square of its values now, at least 1e-3
// (Shazeer and Stern 2018, "Adafactor", section 8, of the first values): a resumed run builds the
// same model first, and so finds the same.
std::vector<optim::ParameterGroup> OptimizerGroups(const RunConfig& config,
                                                   const std::vector<optim::Parameter>& parameters);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_OPTIMIZER_GROUPS_H_
