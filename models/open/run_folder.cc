// SPDX-License-Identifier: Apache-2.0
#include "models/open/run_folder.h"

#include "nlohmann/json.hpp"

namespace tessera::models {

bool IsRunConfig(const nlohmann::json& config) {
  return config.is_object() && config.value("model_type", nlohmann::json()).is_null();
}

}  // namespace tessera::models
