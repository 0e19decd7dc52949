// SPDX-License-Identifier: Apache-2.0
#include "models/hub/change_config.h"

#include "nlohmann/json.hpp"

namespace tessera::models {

void ChangeConfig(const nlohmann::json& keys, nlohmann::json* config) {
  for (const auto& [key, value] : keys.items()) {
    if (value.is_null() && key != "pad_token_id") {
      config->erase(key);
    } else {
      (*config)[key] = value;
    }
  }
}

}  // namespace tessera::models
