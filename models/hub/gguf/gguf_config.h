// SPDX-License-Identifier: Apache-2.0
// The config.json of the model in a GGUF file.
//
//   TESSERA_ASSIGN_OR_RETURN(const nlohmann::json config, ConfigOfGguf(file));
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_CONFIG_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_CONFIG_H_

#include "base/status.h"
#include "models/hub/gguf/gguf_file.h"
#include "nlohmann/json.hpp"

namespace tessera::models {

// Without what is known of the model's tokens. InvalidArgument with the key or the tensor.
StatusOr<nlohmann::json> ConfigOfGguf(const GgufFile& file);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_CONFIG_H_
