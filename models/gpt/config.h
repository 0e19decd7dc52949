// SPDX-License-Identifier: Apache-2.0
// GPT-2's configuration; fields are named as in Hugging Face's config.json.
#ifndef TESSERA_MODELS_GPT_CONFIG_H_
#define TESSERA_MODELS_GPT_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/options_fwd.h"
#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

struct GptConfig {
  int64_t vocab_size = 50257;
  int64_t n_positions = 1024;
  int64_t n_embd = 768;
  int64_t n_layer = 12;
  int64_t n_head = 12;
  std::optional<int64_t> n_inner;  // absent: 4 * n_embd
  std::string activation_function = "gelu_new";
  double resid_pdrop = 0.1;
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  bool scale_attn_weights = true;
  bool scale_attn_by_inverse_layer_idx = false;
  bool tie_word_embeddings = true;

  int64_t inner_size() const { return n_inner ? *n_inner : 4 * n_embd; }

  // Checks sizes; refuses by name what would change results and is not supported.
  static StatusOr<GptConfig> FromJson(const nlohmann::json& json);
  static const OptionTable& Table();
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GPT_CONFIG_H_
