// SPDX-License-Identifier: Apache-2.0
// The gradients of a model's parameters after Backward, by the names under which weights are saved.
#ifndef TESSERA_TOOLS_MODEL_GRADIENTS_H_
#define TESSERA_TOOLS_MODEL_GRADIENTS_H_

#include <string>
#include <utility>
#include <vector>

#include "models/model.h"

namespace tessera::tools {

// One gradient per parameter; those of tied uses are summed under the name the weight is saved
// under. A parameter that the loss does not depend on has zeros; one that never trains is left out.
std::vector<std::pair<std::string, Tensor>> CollectGradients(models::Model& model);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_MODEL_GRADIENTS_H_
