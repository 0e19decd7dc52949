// SPDX-License-Identifier: Apache-2.0
// The config.json of the model in a GGUF file.
//
//   TESSERA_ASSIGN_OR_RETURN(const nlohmann::json config, ConfigOfGguf(file));
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_CONFIG_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_CONFIG_H_

#include <string>

#include "base/status.h"
#include "models/hub/gguf/gguf_file.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

// Without what is known of the model's tokens. InvalidArgument with the key or the tensor.
StatusOr<nlohmann::json> ConfigOfGguf(const GgufFile& file);

// Whether a tensor is of the layers behind the model's, which predict further tokens (GLM-4.5's).
// They are left out.
bool IsOfPredictingLayer(const GgufFile& file, const std::string& architecture,
                         const std::string& tensor);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_CONFIG_H_
