// SPDX-License-Identifier: Apache-2.0
// ChatGLM2-6B, ChatGLM3-6B and the first files of GLM-4-9B (THUDM/glm-4-9b): the model that
// transformers has as GlmForCausalLM, by keys and names of its own ("model_type" "chatglm", which
// ChatGLM-6B has, too: models/glm).
//
//   {"model_type": "chatglm", "num_layers": 28, "padded_vocab_size": 65024, "kv_channels": 128,
//    "ffn_hidden_size": 13696, "multi_query_attention": true, "multi_query_group_num": 2, ...}
#ifndef TESSERA_MODELS_LLAMA_CHATGLM2_H_
#define TESSERA_MODELS_LLAMA_CHATGLM2_H_

#include "models/llama/config.h"

namespace tessera::models {

// Whether a configuration of "chatglm" is of these, by keys that ChatGLM-6B lacks.
bool IsChatGlm2(const nlohmann::json& json);

// Checks sizes; refuses by name what would change results and is not supported.
StatusOr<LlamaConfig> ChatGlm2FromJson(const nlohmann::json& json);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_LLAMA_CHATGLM2_H_
