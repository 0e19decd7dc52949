// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts, between a model's configuration and the keys expert_* of a GGUF file.
//
//   TESSERA_ASSIGN_OR_RETURN(const GgufMetadata keys,
//                            GgufExpertKeys(config_json, config, architecture.experts));
//   TESSERA_RETURN_IF_ERROR(ReadGgufExperts(file, architecture.experts, &reader, &config_json));
//
// llama.cpp fixes for each architecture but GLM-4.5's how experts are chosen and weighted, and that
// all layers have them. Files do not hold the losses that balance experts in training.
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_EXPERTS_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_EXPERTS_H_

#include "base/status.h"
#include "models/hub/gguf/gguf_architectures.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/gguf/gguf_key_reader.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

struct LlamaConfig;

// Without the architecture's name before them; empty for a model without experts. InvalidArgument,
// with the key of config.json, for what a file cannot say.
StatusOr<GgufMetadata> GgufExpertKeys(const nlohmann::json& json, const LlamaConfig& config,
                                      const GgufExperts& experts);

// Adds the keys of experts to a config.json that has `num_hidden_layers` and `intermediate_size`.
// InvalidArgument where the file does not have a router of so many experts in each layer.
Status ReadGgufExperts(const GgufFile& file, const GgufExperts& experts, GgufKeyReader* reader,
                       nlohmann::json* config);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_EXPERTS_H_
