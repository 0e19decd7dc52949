// SPDX-License-Identifier: Apache-2.0
// The configuration of Llama and of the decoders that are like it; fields are named as in Hugging
// Face's config.json, where there is one. What an absent key means differs from type to type
// (models/llama/types.h).
#ifndef TESSERA_MODELS_LLAMA_CONFIG_H_
#define TESSERA_MODELS_LLAMA_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options_fwd.h"
#include "base/status.h"
#include "models/llama/experts.h"
#include "nlohmann/json_fwd.hpp"
#include "nn/rotary.h"

namespace tessera::models {

// What the parts are called in the checkpoints of a type. A norm without a name is not there.
struct LlamaNames {
  std::string decoder = "model";
  std::string embedding = "embed_tokens";
  std::string layers = "layers";
  std::string norm = "norm";
  std::string head = "lm_head";
  std::string attention = "self_attn";
  std::vector<std::string> qkv = {"q_proj", "k_proj", "v_proj"};  // one: a fused projection
  std::string output = "o_proj";
  std::string gate = "gate_proj";  // the same as `up`: one projection gives both
  std::string up = "up_proj";
  std::string down = "down_proj";
  std::string attention_norm = "input_layernorm";
  std::string attention_output_norm;
  std::string mlp_norm = "post_attention_layernorm";
  std::string mlp_output_norm;
};

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
  double resid_pdrop = 0;     // of what a part gives (Phi-3)
  int64_t pad_token_id = -1;  // its embedding is not trained; -1: none

  bool qkv_bias = false;
  bool output_bias = false;             // of o_proj
  bool mlp_bias = false;                // of gate_proj, up_proj and down_proj
  bool has_head_norms = false;          // q_norm and k_norm, of each head
  bool joint_head_norms = false;        // or of all heads at once (OLMo 2)
  nn::RotaryConfig rotary = {};         // rope_theta, rope_scaling, rope_parameters
  bool rereads_at_length_kind = false;  // Model::rereads_at_length_kind; of Phi-3 with LongRoPE
  std::vector<int64_t> windows;         // of each layer, in tokens; 0: all are seen
  // Of layers with a window, where they have positions of their own (rope_local_base_freq).
  std::optional<nn::RotaryConfig> local_rotary = std::nullopt;
  std::vector<bool> rotates;  // whether each layer does; empty: all do (no_rope_layers)
  // Gemma's: scores are divided by the root of it (0: of head_dim), embeddings are multiplied by
  // the root of hidden_size, norms are held less 1; Gemma 2 caps scores and logits (0: no cap).
  double query_pre_attn_scalar = 0;
  bool scaled_embeddings = false;
  bool zero_centered_norms = false;
  double attn_logit_softcapping = 0;
  double final_logit_softcapping = 0;
  int64_t max_positions = 2048;  // max_position_embeddings, or what its scaling extends that to
  LlamaNames names = {};
  LlamaExperts experts = {};

  // By "model_type". Checks sizes; refuses by name what would change results and is not supported.
  static StatusOr<LlamaConfig> FromJson(const nlohmann::json& json);
  static const OptionTable& Table();

  // Of layer number `layer`.
  std::optional<nn::RotaryConfig> RotaryOf(size_t layer) const {
    if (!rotates.empty() && !rotates[layer]) return std::nullopt;
    return local_rotary && windows[layer] > 0 ? *local_rotary : rotary;
  }
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_LLAMA_CONFIG_H_
