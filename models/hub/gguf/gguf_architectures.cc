// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_architectures.h"

#include <algorithm>
#include <iterator>

namespace tessera::models {
namespace {

constexpr GgufName kGptNames[] = {
    {"transformer.wte", "token_embd"},
    {"transformer.wpe", "position_embd"},
    {"transformer.h.#.ln_1", "blk.#.attn_norm"},
    {"transformer.h.#.attn.c_attn", "blk.#.attn_qkv", true},
    {"transformer.h.#.attn.c_proj", "blk.#.attn_output", true},
    {"transformer.h.#.ln_2", "blk.#.ffn_norm"},
    {"transformer.h.#.mlp.c_fc", "blk.#.ffn_up", true},
    {"transformer.h.#.mlp.c_proj", "blk.#.ffn_down", true},
    {"transformer.ln_f", "output_norm"},
    {"lm_head", "output"},
};
constexpr GgufName kLlamaNames[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.layers.#.input_layernorm", "blk.#.attn_norm"},
    {"model.layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"model.layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"model.layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
    {"model.layers.#.self_attn.k_norm", "blk.#.attn_k_norm"},
    {"model.layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"model.layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"model.layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"model.layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"model.layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"model.layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
};
// Norms of what a part gives, too.
constexpr GgufName kGemmaNames[] = {
    {"model.layers.#.post_attention_layernorm", "blk.#.post_attention_norm"},
    {"model.layers.#.pre_feedforward_layernorm", "blk.#.ffn_norm"},
    {"model.layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm"},
};
// Fused projections.
constexpr GgufName kPhiNames[] = {
    {"model.layers.#.self_attn.qkv_proj", "blk.#.attn_qkv"},
    {"model.layers.#.mlp.gate_up_proj", "blk.#.ffn_up"},
};
constexpr GgufName kGlmNames[] = {
    {"model.layers.#.mlp.gate_up_proj", "blk.#.ffn_up"},
    {"model.layers.#.post_self_attn_layernorm", "blk.#.post_attention_norm"},
    {"model.layers.#.post_mlp_layernorm", "blk.#.post_ffw_norm"},
};
constexpr GgufName kChatGlmNames[] = {
    {"transformer.embedding.word_embeddings", "token_embd"},
    {"transformer.encoder.layers.#.input_layernorm", "blk.#.attn_norm"},
    {"transformer.encoder.layers.#.self_attention.query_key_value", "blk.#.attn_qkv"},
    {"transformer.encoder.layers.#.self_attention.dense", "blk.#.attn_output"},
    {"transformer.encoder.layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"transformer.encoder.layers.#.mlp.dense_h_to_4h", "blk.#.ffn_up"},
    {"transformer.encoder.layers.#.mlp.dense_4h_to_h", "blk.#.ffn_down"},
    {"transformer.encoder.final_layernorm", "output_norm"},
    {"transformer.output_layer", "output"},
};
constexpr GgufName kMixtralNames[] = {
    {"model.layers.#.block_sparse_moe.gate", "blk.#.ffn_gate_inp"},
    {"model.layers.#.block_sparse_moe.experts.#.w1", "blk.#.ffn_gate_exps"},
    {"model.layers.#.block_sparse_moe.experts.#.w3", "blk.#.ffn_up_exps"},
    {"model.layers.#.block_sparse_moe.experts.#.w2", "blk.#.ffn_down_exps"},
};
constexpr GgufName kQwenMoeNames[] = {
    {"model.layers.#.mlp.gate", "blk.#.ffn_gate_inp"},
    {"model.layers.#.mlp.experts.#.gate_proj", "blk.#.ffn_gate_exps"},
    {"model.layers.#.mlp.experts.#.up_proj", "blk.#.ffn_up_exps"},
    {"model.layers.#.mlp.experts.#.down_proj", "blk.#.ffn_down_exps"},
    {"model.layers.#.mlp.shared_expert_gate", "blk.#.ffn_gate_inp_shexp"},
    {"model.layers.#.mlp.shared_expert.gate_proj", "blk.#.ffn_gate_shexp"},
    {"model.layers.#.mlp.shared_expert.up_proj", "blk.#.ffn_up_shexp"},
    {"model.layers.#.mlp.shared_expert.down_proj", "blk.#.ffn_down_shexp"},
};
constexpr GgufName kGlmMoeNames[] = {
    {"model.layers.#.post_attention_layernorm", "blk.#.post_attention_norm"},
    {"model.layers.#.mlp.gate", "blk.#.ffn_gate_inp"},
    {"model.layers.#.mlp.gate.e_score_correction_bias", "blk.#.exp_probs_b.bias"},
    {"model.layers.#.mlp.experts.#.gate_proj", "blk.#.ffn_gate_exps"},
    {"model.layers.#.mlp.experts.#.up_proj", "blk.#.ffn_up_exps"},
    {"model.layers.#.mlp.experts.#.down_proj", "blk.#.ffn_down_exps"},
    {"model.layers.#.mlp.shared_experts.gate_proj", "blk.#.ffn_gate_shexp"},
    {"model.layers.#.mlp.shared_experts.up_proj", "blk.#.ffn_up_shexp"},
    {"model.layers.#.mlp.shared_experts.down_proj", "blk.#.ffn_down_shexp"},
};

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "gpt2",
     .model_type = "gpt2",
     .class_name = "GPT2LMHeadModel",
     .names = kGptNames,
     .biases = GgufBiases::kAll},
    {.name = "llama",
     .model_type = "llama",
     .class_name = "LlamaForCausalLM",
     .biases = GgufBiases::kAll,
     .interleaves_heads = true},
    {.name = "llama",
     .model_type = "mistral",
     .class_name = "MistralForCausalLM",
     .interleaves_heads = true,
     .has_window = true},
    {.name = "llama",
     .model_type = "mixtral",
     .class_name = "MixtralForCausalLM",
     .names = kMixtralNames,
     .interleaves_heads = true,
     .has_window = true,
     .experts = {.count_key = "num_local_experts"}},
    {.name = "qwen2",
     .model_type = "qwen2",
     .class_name = "Qwen2ForCausalLM",
     .biases = GgufBiases::kQueries},
    {.name = "qwen3", .model_type = "qwen3", .class_name = "Qwen3ForCausalLM"},
    {.name = "gemma2",
     .model_type = "gemma2",
     .class_name = "Gemma2ForCausalLM",
     .names = kGemmaNames,
     .added_to_norms = 1,
     .window_period = 2,
     .layers_of_27b = 46,
     .needs_tie = true},
    {.name = "gemma3",
     .model_type = "gemma3_text",
     .class_name = "Gemma3ForCausalLM",
     .names = kGemmaNames,
     .added_to_norms = 1,
     .window_period = 6,
     .layers_of_27b = 62},
    {.name = "olmo2",
     .model_type = "olmo2",
     .class_name = "Olmo2ForCausalLM",
     .names = kGemmaNames,
     .heads_fill_width = true,
     .needs_head = true},
    {.name = "smollm3",
     .model_type = "smollm3",
     .class_name = "SmolLM3ForCausalLM",
     .interleaves_heads = true},
    {.name = "phi3",
     .model_type = "phi3",
     .class_name = "Phi3ForCausalLM",
     .names = kPhiNames,
     .heads_fill_width = true,
     .rotates_a_share = true,
     .has_window = true},
    {.name = "chatglm",
     .model_type = "glm",
     .class_name = "GlmForCausalLM",
     .names = kGlmNames,
     .biases = GgufBiases::kQueries,
     .heads_fill_width = true,
     .rotates_a_share = true},
    {.name = "chatglm",
     .model_type = "chatglm",
     .class_name = "ChatGLMModel",
     .names = kChatGlmNames,
     .biases = GgufBiases::kQueries,
     .heads_fill_width = true,
     .rotates_a_share = true},
    {.name = "glm4",
     .model_type = "glm4",
     .class_name = "Glm4ForCausalLM",
     .names = kGlmNames,
     .biases = GgufBiases::kQueries,
     .rotates_a_share = true},
    {.name = "qwen2moe",
     .model_type = "qwen2_moe",
     .class_name = "Qwen2MoeForCausalLM",
     .names = kQwenMoeNames,
     .biases = GgufBiases::kQueries,
     .heads_fill_width = true,
     .needs_head = true,
     .experts = {.count_key = "num_experts",
                 .has_width = true,
                 .has_shared_width = true,
                 .normalised = false}},
    {.name = "qwen3moe",
     .model_type = "qwen3_moe",
     .class_name = "Qwen3MoeForCausalLM",
     .names = kQwenMoeNames,
     .experts = {.count_key = "num_experts", .has_width = true}},
    {.name = "glm4moe",
     .model_type = "glm4_moe",
     .class_name = "Glm4MoeForCausalLM",
     .names = kGlmMoeNames,
     .biases = GgufBiases::kQueries,
     .rotates_a_share = true,
     .experts = {.count_key = "n_routed_experts", .has_width = true, .says_routing = true}},
};

}  // namespace

const GgufArchitecture* FindGgufArchitecture(std::string_view model_type) {
  const auto* const found =
      std::ranges::find(kArchitectures, model_type, &GgufArchitecture::model_type);
  return found == std::end(kArchitectures) ? nullptr : found;
}

std::vector<const GgufArchitecture*> ModelTypesOfGguf(std::string_view name) {
  std::vector<const GgufArchitecture*> found;
  for (const GgufArchitecture& known : kArchitectures) {
    if (known.name == name) found.push_back(&known);
  }
  return found;
}

std::string GgufArchitectureNames() {
  std::vector<std::string_view> names;
  for (const GgufArchitecture& known : kArchitectures) {
    if (names.empty() || names.back() != known.name) names.push_back(known.name);
  }
  std::string text(names[0]);
  for (size_t i = 1; i < names.size(); ++i) {
    text.append(i + 1 < names.size() ? ", " : " and ").append(names[i]);
  }
  return text;
}

const GgufName* FindGgufName(const GgufArchitecture& architecture, std::string_view ours) {
  std::vector<std::span<const GgufName>> lists = {architecture.names};
  if (architecture.name != "gpt2") lists.emplace_back(kLlamaNames);
  for (const std::span<const GgufName> names : lists) {
    const auto found = std::ranges::find(names, ours, &GgufName::ours);
    if (found != names.end()) return &*found;
  }
  return nullptr;
}

}  // namespace tessera::models
