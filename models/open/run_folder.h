// SPDX-License-Identifier: Apache-2.0
// A run's folder holds a config.json of the run, where a model's folder has one of the model.
//
//   if (IsRunConfig(config)) ... the model is in the folder `model` below ...
#ifndef TESSERA_MODELS_OPEN_RUN_FOLDER_H_
#define TESSERA_MODELS_OPEN_RUN_FOLDER_H_

#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

// Whether the object of a config.json names no model's type. A run may have the key without a
// value.
bool IsRunConfig(const nlohmann::json& config);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_OPEN_RUN_FOLDER_H_
