// SPDX-License-Identifier: Apache-2.0
// The configuration of Llama, Mistral, Qwen2, Qwen3 and Gemma 3; fields are named as in Hugging
// Face's config.json, where there is one. What an absent key means differs from one to the other.
#ifndef TESSERA_MODELS_LLAMA_CONFIG_H_
#define TESSERA_MODELS_LLAMA_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/options_fwd.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "nn/rotary.h"

namespace tessera::models {

inline constexpr std::string_view kLlamaTypes[] = {"llama", "mistral", "qwen2", "qwen3",
                                                   "gemma3_text"};

struct LlamaConfig {
  int64_t vocab_size = 32000;
  int64_t hidden_size = 4096;
  int64_t intermediate_size = 11008;
  int64_t num_hidden_layers = 32;
  int64_t num_attention_heads = 32;
  int64_t num_key_value_heads = 32;
  int64_t head_dim = 128;
  std::string hidden_act = "silu";
  int64_t max_position_embeddings = 2048;
  double initializer_range = 0.02;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  bool has_lm_head = true;  // false: hidden states alone, as of LlamaModel; a key of ours
  double attention_dropout = 0;
  int64_t pad_token_id = -1;  // its embedding is not trained; -1: none

  bool qkv_bias = false;
  bool output_bias = false;      // of o_proj
  bool mlp_bias = false;         // of gate_proj, up_proj and down_proj
  bool has_head_norms = false;   // q_norm and k_norm
  nn::RotaryConfig rotary = {};  // rope_theta, rope_scaling, rope_parameters
  std::vector<int64_t> windows;  // of each layer, in tokens; 0: all are seen
  // Of layers with a window, where they have positions of their own (rope_local_base_freq).
  std::optional<nn::RotaryConfig> local_rotary = std::nullopt;
  // Gemma's: scores are divided by the root of it (0: of head_dim), embeddings are multiplied by
  // the root of hidden_size, norms are held less 1 and stand on both sides of the parts.
  double query_pre_attn_scalar = 0;
  bool scaled_embeddings = false;
  bool zero_centered_norms = false;
  bool norms_on_both_sides = false;
  int64_t max_positions = 2048;  // max_position_embeddings, or what its scaling extends that to

  // By "model_type". Checks sizes; refuses by name what would change results and is not supported.
  static StatusOr<LlamaConfig> FromJson(const nlohmann::json& json);
  static const OptionTable& Table();

  // Of layer number `layer`.
  const nn::RotaryConfig& RotaryOf(size_t layer) const {
    return local_rotary && windows[layer] > 0 ? *local_rotary : rotary;
  }
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_LLAMA_CONFIG_H_
