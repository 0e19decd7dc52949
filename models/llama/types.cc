// SPDX-License-Identifier: Apache-2.0
#include "models/llama/types.h"

#include "base/error.h"

namespace tessera::models {
namespace {

LlamaType PlainLlama() {
  return {.name = "llama",
          .groups_are_heads = true,
          .attention_bias = true,
          .output_bias = true,
          .mlp_bias = true};
}

LlamaType Mistral() {
  LlamaType type = {.name = "mistral", .windows = LlamaWindows::kAllOrNamed};
  type.defaults.intermediate_size = 14336;
  type.defaults.num_key_value_heads = 8;
  type.defaults.max_position_embeddings = 131072;
  return type;
}

// What transformers makes of Mistral's configurations with `layer_types`, too.
LlamaType Ministral() {
  LlamaType type = Mistral();
  type.name = "ministral";
  return type;
}

LlamaType Qwen2() {
  LlamaType type = {.name = "qwen2", .windows = LlamaWindows::kQwen};
  type.defaults.vocab_size = 151936;
  type.defaults.intermediate_size = 22016;
  type.defaults.max_position_embeddings = 32768;
  type.defaults.qkv_bias = true;
  return type;
}

LlamaType Qwen3() {
  LlamaType type = Qwen2();
  type.name = "qwen3";
  type.divides_width = false;
  type.attention_bias = type.output_bias = true;
  type.defaults.qkv_bias = false;
  type.defaults.has_head_norms = true;
  return type;
}

LlamaType Gemma2() {
  LlamaType type = {.name = "gemma2",
                    .divides_width = false,
                    .windows = LlamaWindows::kPattern,
                    .window_period = 2,
                    .attention_bias = true,
                    .output_bias = true};
  LlamaConfig& c = type.defaults;
  c.vocab_size = 256000;
  c.hidden_size = 2304;
  c.intermediate_size = 9216;
  c.num_hidden_layers = 26;
  c.num_attention_heads = 8;
  c.num_key_value_heads = 4;
  c.head_dim = 256;
  c.hidden_act = "gelu_pytorch_tanh";
  c.max_position_embeddings = 8192;
  c.tie_word_embeddings = true;
  c.pad_token_id = 0;
  c.query_pre_attn_scalar = 256;
  c.scaled_embeddings = true;
  c.zero_centered_norms = true;
  c.attn_logit_softcapping = 50;
  c.final_logit_softcapping = 30;
  c.names.attention_output_norm = "post_attention_layernorm";
  c.names.mlp_norm = "pre_feedforward_layernorm";
  c.names.mlp_output_norm = "post_feedforward_layernorm";
  return type;
}

LlamaType Gemma3() {
  LlamaType type = Gemma2();
  type.name = "gemma3_text";
  type.window_period = 6;
  type.rope_theta = 1e6;
  LlamaConfig& c = type.defaults;
  c.vocab_size = 262208;
  c.max_position_embeddings = 131072;
  c.attn_logit_softcapping = c.final_logit_softcapping = 0;
  c.has_head_norms = true;
  c.local_rotary = nn::RotaryConfig();
  return type;
}

LlamaType Olmo2() {
  LlamaType type = {
      .name = "olmo2", .groups_are_heads = true, .attention_bias = true, .output_bias = true};
  LlamaConfig& c = type.defaults;
  c.vocab_size = 50304;
  c.rms_norm_eps = 1e-5;
  c.pad_token_id = 1;
  c.has_head_norms = c.joint_head_norms = true;
  c.names.attention_norm = c.names.mlp_norm = "";
  c.names.attention_output_norm = "post_attention_layernorm";
  c.names.mlp_output_norm = "post_feedforward_layernorm";
  return type;
}

LlamaType SmolLm3() {
  LlamaType type = {.name = "smollm3",
                    .windows = LlamaWindows::kNamed,
                    .window = 0,
                    .attention_bias = true,
                    .output_bias = true,
                    .mlp_bias = true,
                    .rope_theta = 2e6};
  LlamaConfig& c = type.defaults;
  c.vocab_size = 128256;
  c.hidden_size = 2048;
  c.num_hidden_layers = 36;
  c.num_attention_heads = 16;
  c.num_key_value_heads = 4;
  c.max_position_embeddings = 32768;
  c.tie_word_embeddings = true;
  c.pad_token_id = 128004;
  return type;
}

LlamaType Phi3() {
  LlamaType type = {.name = "phi3",
                    .groups_are_heads = true,
                    .windows = LlamaWindows::kAll,
                    .window = 0,
                    .reads_rotary_share = true};
  LlamaConfig& c = type.defaults;
  c.vocab_size = 32064;
  c.hidden_size = 3072;
  c.intermediate_size = 8192;
  c.max_position_embeddings = 4096;
  c.rms_norm_eps = 1e-5;
  c.pad_token_id = 32000;
  c.names.qkv = {"qkv_proj"};
  c.names.gate = c.names.up = "gate_up_proj";
  return type;
}

// GLM-4. Its first files have the same model by other names (models/llama/chatglm2.h).
LlamaType Glm() {
  LlamaType type = {
      .name = "glm", .divides_width = false, .attention_bias = true, .reads_rotary_share = true};
  LlamaConfig& c = type.defaults;
  c.vocab_size = 151552;
  c.intermediate_size = 13696;
  c.num_hidden_layers = 40;
  c.num_key_value_heads = 2;
  c.max_position_embeddings = 131072;
  c.rms_norm_eps = 1.5625e-07;
  c.pad_token_id = 151329;
  c.qkv_bias = true;
  c.rotary.share = 0.5;
  c.rotary.pairs = RotaryPairs::kInterleaved;
  c.names.gate = c.names.up = "gate_up_proj";
  return type;
}

LlamaType Glm4() {
  LlamaType type = Glm();
  type.name = "glm4";
  type.defaults.names.attention_output_norm = "post_self_attn_layernorm";
  type.defaults.names.mlp_output_norm = "post_mlp_layernorm";
  return type;
}

LlamaType Mixtral() {
  LlamaType type = Mistral();
  type.name = "mixtral";
  type.windows = LlamaWindows::kAll;
  type.window = 0;
  type.rope_theta = 1e6;
  LlamaConfig& c = type.defaults;
  c.rms_norm_eps = 1e-5;
  c.experts = {.num_experts = 8,
               .per_token = 2,
               .balance_weight = 0.001,
               .block = "block_sparse_moe",
               .gate = "w1",
               .up = "w3",
               .down = "w2"};
  return type;
}

LlamaType Qwen2Moe() {
  LlamaType type = Qwen2();
  type.name = "qwen2_moe";
  type.windows = LlamaWindows::kNamed;
  LlamaConfig& c = type.defaults;
  c.hidden_size = 2048;
  c.intermediate_size = 5632;
  c.num_hidden_layers = 24;
  c.num_attention_heads = c.num_key_value_heads = 16;
  c.experts = {.num_experts = 60,
               .per_token = 4,
               .inner_size = 1408,
               .shared_inner_size = 5632,
               .gated_share = true,
               .normalised = false,
               .balance_weight = 0.001,
               .shared = "shared_expert"};
  return type;
}

LlamaType Qwen3Moe() {
  LlamaType type = Qwen3();
  type.name = "qwen3_moe";
  type.windows = LlamaWindows::kAsked;
  type.divides_width = true;
  LlamaConfig& c = type.defaults;
  c.hidden_size = 2048;
  c.intermediate_size = 6144;
  c.num_hidden_layers = 24;
  c.num_key_value_heads = 4;
  c.experts = {.num_experts = 128,
               .per_token = 8,
               .inner_size = 768,
               .normalised = false,
               .balance_weight = 0.001};
  return type;
}

LlamaType Glm4Moe() {
  LlamaType type = {.name = "glm4_moe", .attention_bias = true, .reads_rotary_share = true};
  LlamaConfig& c = type.defaults;
  c.vocab_size = 151552;
  c.intermediate_size = 10944;
  c.num_hidden_layers = 46;
  c.num_attention_heads = 96;
  c.num_key_value_heads = 8;
  c.max_position_embeddings = 131072;
  c.rms_norm_eps = 1e-5;
  c.rotary.share = 0.5;
  c.experts = {.num_experts = 128, .per_token = 8, .inner_size = 1408, .sigmoids = true};
  return type;
}

}  // namespace

const LlamaType& LlamaTypeOf(std::string_view model_type) {
  static const auto* const types = new std::vector<LlamaType>{
      PlainLlama(), Mistral(), Ministral(), Qwen2(), Qwen3(),   Gemma2(),   Gemma3(),   Olmo2(),
      SmolLm3(),    Phi3(),    Glm(),       Glm4(),  Mixtral(), Qwen2Moe(), Qwen3Moe(), Glm4Moe()};
  for (const LlamaType& type : *types) {
    if (type.name == model_type) return type;
  }
  throw Error("llama", Concat("no configuration of type '", model_type, "'"));
}

}  // namespace tessera::models
