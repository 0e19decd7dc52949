// SPDX-License-Identifier: Apache-2.0
// How the command line and the Hub know Llama and its like.
#include "core/batch_keys.h"
#include "models/family.h"
#include "models/llama/chatglm2.h"
#include "models/llama/llama.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

struct Size {
  const char* name;
  int layers;
  int heads;
  int key_value_heads;
  int head_dim;
  int width;
  int inner;
  int positions;
  int vocabulary;
  bool tied;
  double theta;
  const char* more = "{}";
};

// What the published configurations of a type have in common; `own` is the type's.
Preset MakePreset(const char* type, const char* architecture, const char* own, const Size& size,
                  const char* tokenizer = "") {
  json config = PresetConfig(
      R"({"hidden_act": "silu", "initializer_range": 0.02, "rms_norm_eps": 1e-5,
          "rope_scaling": null, "attention_dropout": 0.0, "use_cache": true})",
      {{"vocab_size", size.vocabulary},
       {"hidden_size", size.width},
       {"intermediate_size", size.inner},
       {"num_hidden_layers", size.layers},
       {"num_attention_heads", size.heads},
       {"num_key_value_heads", size.key_value_heads},
       {"head_dim", size.head_dim},
       {"max_position_embeddings", size.positions}});
  config["model_type"] = type;
  config["architectures"] = json::array({architecture});
  config["tie_word_embeddings"] = size.tied;
  config["rope_theta"] = size.theta;
  config.update(PresetConfig(own));
  config.update(PresetConfig(size.more));
  return {size.name, tokenizer, std::move(config)};
}

std::vector<Preset> LlamaPresets() {
  constexpr char kSentencePiece[] = R"({"bos_token_id": 1, "eos_token_id": 2})";
  constexpr char kLlama3[] = R"({"bos_token_id": 128000, "eos_token_id": 128001})";
  constexpr char kScaled[] =
      R"({"bos_token_id": 128000, "eos_token_id": 128001,
          "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                           "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})";
  std::vector<Preset> presets;
  for (const Size& size :
       {Size{"llama-2-7b", 32, 32, 32, 128, 4096, 11008, 4096, 32000, false, 1e4, kSentencePiece},
        {"llama-3-8b", 32, 32, 8, 128, 4096, 14336, 8192, 128256, false, 5e5, kLlama3},
        {"llama-3.2-1b", 16, 32, 8, 64, 2048, 8192, 131072, 128256, true, 5e5, kScaled},
        {"llama-3.2-3b", 28, 24, 8, 128, 3072, 8192, 131072, 128256, true, 5e5, kScaled},
        {"tinyllama-1.1b", 22, 32, 4, 64, 2048, 5632, 2048, 32000, false, 1e4, kSentencePiece},
        {"llama-tiny", 4, 4, 2, 32, 128, 352, 256, 32000, true, 1e4},
        {"llama-mini", 6, 6, 2, 64, 384, 1024, 512, 32000, true, 1e4}}) {
    presets.push_back(
        MakePreset("llama", "LlamaForCausalLM",
                   R"({"attention_bias": false, "mlp_bias": false, "pretraining_tp": 1})", size,
                   size.positions < 1024 ? "byte" : ""));
  }
  return presets;
}

std::vector<Preset> MistralPresets() {
  return {MakePreset("mistral", "MistralForCausalLM",
                     R"({"sliding_window": 4096, "bos_token_id": 1, "eos_token_id": 2})",
                     {"mistral-7b", 32, 32, 8, 128, 4096, 14336, 32768, 32000, false, 1e4})};
}

std::vector<Preset> QwenPresets(const char* type, const char* architecture,
                                std::initializer_list<Size> sizes) {
  std::vector<Preset> presets;
  for (const Size& size : sizes) {
    presets.push_back(
        MakePreset(type, architecture,
                   R"({"rms_norm_eps": 1e-6, "use_sliding_window": false, "sliding_window": null,
                       "bos_token_id": 151643, "eos_token_id": 151643})",
                   size));
  }
  return presets;
}

std::vector<Preset> GemmaPresets() {
  constexpr char kGemma[] =
      R"({"rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 512,
          "rope_local_base_freq": 1e4, "query_pre_attn_scalar": 256, "attention_bias": false,
          "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0})";
  std::vector<Preset> presets;
  for (const Size& size : {Size{"gemma-3-270m", 18, 4, 1, 256, 640, 2048, 32768, 262144, true, 1e6},
                           {"gemma-3-1b", 26, 4, 1, 256, 1152, 6912, 32768, 262144, true, 1e6}}) {
    presets.push_back(MakePreset("gemma3_text", "Gemma3ForCausalLM", kGemma, size));
    presets.back().config->erase("hidden_act");  // named hidden_activation here
  }
  return presets;
}

std::vector<Preset> Gemma2Presets() {
  Preset preset = MakePreset(
      "gemma2", "Gemma2ForCausalLM",
      R"({"rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096,
          "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0,
          "final_logit_softcapping": 30.0, "attention_bias": false, "bos_token_id": 2,
          "eos_token_id": 1, "pad_token_id": 0})",
      {"gemma-2-2b", 26, 8, 4, 256, 2304, 9216, 8192, 256000, true, 1e4});
  preset.config->erase("hidden_act");
  return {std::move(preset)};
}

std::vector<Preset> Olmo2Presets() {
  return {MakePreset("olmo2", "Olmo2ForCausalLM",
                     R"({"rms_norm_eps": 1e-6, "attention_bias": false, "bos_token_id": null,
                         "eos_token_id": 100257, "pad_token_id": 100277})",
                     {"olmo-2-1b", 16, 16, 16, 128, 2048, 8192, 4096, 100352, false, 5e5})};
}

std::vector<Preset> SmolLm3Presets() {
  return {MakePreset("smollm3", "SmolLM3ForCausalLM",
                     R"({"rms_norm_eps": 1e-6, "attention_bias": false, "mlp_bias": false,
                         "no_rope_layer_interval": 4, "use_sliding_window": false,
                         "sliding_window": null, "bos_token_id": 128000, "eos_token_id": 128012,
                         "pad_token_id": 128004})",
                     {"smollm3-3b", 36, 16, 4, 128, 2048, 11008, 65536, 128256, true, 5e6})};
}

std::vector<Preset> Phi3Presets() {
  return {MakePreset("phi3", "Phi3ForCausalLM",
                     R"({"sliding_window": 2047, "original_max_position_embeddings": 4096,
                         "resid_pdrop": 0.0, "embd_pdrop": 0.0, "bos_token_id": 1,
                         "eos_token_id": 32000, "pad_token_id": 32000})",
                     {"phi-3-mini", 32, 32, 32, 96, 3072, 8192, 4096, 32064, false, 1e4})};
}

std::vector<Preset> GlmPresets() {
  return {MakePreset("glm", "GlmForCausalLM",
                     R"({"rms_norm_eps": 1.5625e-07, "attention_bias": true,
                         "partial_rotary_factor": 0.5, "pad_token_id": 151329,
                         "eos_token_id": [151329, 151336, 151338]})",
                     {"glm-4-9b", 40, 32, 2, 128, 4096, 13696, 8192, 151552, false, 1e4})};
}

std::vector<Preset> MixtralPresets() {
  return {MakePreset("mixtral", "MixtralForCausalLM",
                     R"({"bos_token_id": 1, "eos_token_id": 2, "num_local_experts": 8,
                         "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02,
                         "router_jitter_noise": 0.0, "output_router_logits": false,
                         "router_z_loss_coef": 0.0, "expert_capacity_factor": 0.0,
                         "sliding_window": null})",
                     {"mixtral-8x7b", 32, 32, 8, 128, 4096, 14336, 32768, 32000, false, 1e6})};
}

std::vector<Preset> Qwen2MoePresets() {
  return {MakePreset("qwen2_moe", "Qwen2MoeForCausalLM",
                     R"({"bos_token_id": 151643, "eos_token_id": 151643, "rms_norm_eps": 1e-6,
                         "num_experts": 60, "num_experts_per_tok": 4,
                         "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
                         "decoder_sparse_step": 1, "norm_topk_prob": false,
                         "mlp_only_layers": [], "router_aux_loss_coef": 0.001,
                         "output_router_logits": false, "use_sliding_window": false,
                         "router_z_loss_coef": 0.0, "expert_capacity_factor": 0.0})",
                     {"qwen1.5-moe-a2.7b", 24, 16, 16, 128, 2048, 5632, 8192, 151936, false, 1e6})};
}

// The tiny one trains in seconds, on bytes.
std::vector<Preset> Qwen3MoePresets() {
  constexpr char kExperts[] =
      R"({"bos_token_id": 151643, "eos_token_id": 151645, "rms_norm_eps": 1e-6,
          "attention_bias": false, "num_experts": 128, "num_experts_per_tok": 8,
          "moe_intermediate_size": 768, "decoder_sparse_step": 1, "norm_topk_prob": true,
          "mlp_only_layers": [], "router_aux_loss_coef": 0.001, "output_router_logits": false,
          "router_z_loss_coef": 0.0, "expert_capacity_factor": 0.0,
          "use_sliding_window": false})";
  constexpr char kTiny[] =
      R"({"bos_token_id": null, "eos_token_id": null, "num_experts": 8, "num_experts_per_tok": 2,
          "moe_intermediate_size": 176, "router_aux_loss_coef": 0.01,
          "output_router_logits": true})";
  const char* const type = "qwen3_moe";
  const char* const architecture = "Qwen3MoeForCausalLM";
  return {MakePreset(type, architecture, kExperts,
                     {"qwen3-30b-a3b", 48, 32, 4, 128, 2048, 6144, 40960, 151936, false, 1e6}),
          MakePreset(type, architecture, kExperts,
                     {"moe-tiny", 4, 4, 2, 32, 128, 352, 256, 32000, true, 1e4, kTiny}, "byte")};
}

std::vector<Preset> Glm4MoePresets() {
  constexpr char kExperts[] =
      R"({"eos_token_id": [151329, 151336, 151338], "pad_token_id": 151329,
          "attention_bias": true, "partial_rotary_factor": 0.5, "n_routed_experts": 128,
          "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1408,
          "routed_scaling_factor": 1.0, "first_k_dense_replace": 1, "norm_topk_prob": true,
          "n_group": 1, "topk_group": 1, "use_qk_norm": false, "router_z_loss_coef": 0.0,
          "router_bias_update_rate": 0.0, "expert_capacity_factor": 0.0})";
  return {MakePreset("glm4_moe", "Glm4MoeForCausalLM", kExperts,
                     {"glm-4.5-air", 46, 96, 8, 128, 4096, 10944, 131072, 151552, false, 1e6})};
}

// The frequencies of the rotations, which older files carry.
bool IsRotaryBuffer(const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq") || name == "transformer.rotary_pos_emb.inv_freq";
}

// Of the layers behind the last one, which predict further tokens: of GLM-4.5-Air and GLM-4.5.
bool IsPredictedToken(const std::string& name) {
  return IsRotaryBuffer(name) || name.starts_with("model.layers.46.") ||
         name.starts_with("model.layers.92.");
}

Preset ChatGlm2Preset(const char* name, int positions) {
  return {name, "",
          PresetConfig(R"({"model_type": "chatglm", "architectures": ["ChatGLMModel"],
                           "padded_vocab_size": 65024, "hidden_size": 4096,
                           "ffn_hidden_size": 13696, "num_layers": 28, "num_attention_heads": 32,
                           "kv_channels": 128, "multi_query_attention": true,
                           "multi_query_group_num": 2, "add_bias_linear": false,
                           "add_qkv_bias": true, "rmsnorm": true, "post_layer_norm": true,
                           "apply_residual_connection_post_layernorm": false,
                           "layernorm_epsilon": 1e-5, "original_rope": true,
                           "attention_dropout": 0.0, "hidden_dropout": 0.0,
                           "tie_word_embeddings": false, "use_cache": true, "eos_token_id": 2,
                           "pad_token_id": 0})",
                       {{"seq_length", positions}})};
}

// Without its prefix, as the bare decoder is saved.
std::vector<std::string> WithoutModel(const std::string& parameter) {
  const std::string prefix = "model.";
  if (!parameter.starts_with(prefix)) return {};
  return {parameter.substr(prefix.size())};
}

// Of the two models that go by "glm", by keys that the one without rotary positions lacks.
bool IsGlm4(const json& config) {
  return config.contains("num_hidden_layers") || config.contains("partial_rotary_factor") ||
         config.contains("rms_norm_eps");
}

StatusOr<std::unique_ptr<Model>> Build(const json& object, const nn::BuildContext& context) {
  TESSERA_ASSIGN_OR_RETURN(const LlamaConfig config, LlamaConfig::FromJson(object));
  return std::make_unique<Llama>(config, object, context);
}

// A head that is the embedding needs no tensor of its own.
void LeaveOutLmHead(json* config) {
  const auto parsed = LlamaConfig::FromJson(*config);
  if (parsed.ok() && !parsed->tie_word_embeddings) (*config)["has_lm_head"] = false;
}

Family MakeFamily(const char* type, const char* architecture, std::vector<Preset> presets) {
  Family family;
  family.model_type = type;
  family.shares_sequences = true;
  family.loss_takes_num_items = true;
  family.architectures = {{architecture, {Capability::kNextToken}}};
  family.presets = std::move(presets);
  family.build = Build;
  family.other_names = WithoutModel;
  family.ignored_entry = IsRotaryBuffer;
  family.untie = UntieWordEmbeddings;
  family.leave_out_lm_head = LeaveOutLmHead;
  family.adapter_targets = {"q_proj", "v_proj"};
  family.prefix = PrefixPlace();
  family.inputs = {keys::kInputIds, keys::kAttentionMask, keys::kPositionIds, keys::kLabels};
  return family;
}

const FamilyRegistration llama([] {
  return MakeFamily("llama", "LlamaForCausalLM", LlamaPresets());
});
const FamilyRegistration mistral([] {
  return MakeFamily("mistral", "MistralForCausalLM", MistralPresets());
});
const FamilyRegistration ministral([] {
  return MakeFamily("ministral", "MinistralForCausalLM", {});
});
const FamilyRegistration qwen2([] {
  return MakeFamily(
      "qwen2", "Qwen2ForCausalLM",
      QwenPresets("qwen2", "Qwen2ForCausalLM",
                  {{"qwen2.5-0.5b", 24, 14, 2, 64, 896, 4864, 32768, 151936, true, 1e6},
                   {"qwen2.5-1.5b", 28, 12, 2, 128, 1536, 8960, 131072, 151936, true, 1e6},
                   {"qwen2.5-7b", 28, 28, 4, 128, 3584, 18944, 131072, 152064, false, 1e6}}));
});
const FamilyRegistration qwen3([] {
  constexpr char kNoBias[] = R"({"attention_bias": false})";
  return MakeFamily(
      "qwen3", "Qwen3ForCausalLM",
      QwenPresets("qwen3", "Qwen3ForCausalLM",
                  {{"qwen3-0.6b", 28, 16, 8, 128, 1024, 3072, 40960, 151936, true, 1e6, kNoBias},
                   {"qwen3-4b", 36, 32, 8, 128, 2560, 9728, 40960, 151936, true, 1e6, kNoBias}}));
});
const FamilyRegistration gemma3([] {
  return MakeFamily("gemma3_text", "Gemma3ForCausalLM", GemmaPresets());
});
const FamilyRegistration gemma2([] {
  return MakeFamily("gemma2", "Gemma2ForCausalLM", Gemma2Presets());
});
const FamilyRegistration olmo2([] {
  return MakeFamily("olmo2", "Olmo2ForCausalLM", Olmo2Presets());
});
const FamilyRegistration smollm3([] {
  return MakeFamily("smollm3", "SmolLM3ForCausalLM", SmolLm3Presets());
});
const FamilyRegistration phi3([] {
  Family family = MakeFamily("phi3", "Phi3ForCausalLM", Phi3Presets());
  family.adapter_targets = {"qkv_proj"};
  return family;
});
const FamilyRegistration glm([] {
  Family family = MakeFamily("glm", "GlmForCausalLM", GlmPresets());
  family.describes = IsGlm4;
  return family;
});
const FamilyRegistration chatglm2([] {
  Family family =
      MakeFamily("chatglm", "ChatGLMModel",
                 {ChatGlm2Preset("chatglm2-6b", 32768), ChatGlm2Preset("chatglm3-6b", 8192)});
  family.architectures.push_back({"ChatGLMForConditionalGeneration", {Capability::kNextToken}});
  family.describes = IsChatGlm2;
  family.leave_out_lm_head = nullptr;  // the name of its class is that of a bare decoder
  family.other_names = nullptr;
  family.adapter_targets = {"query_key_value"};
  return family;
});
const FamilyRegistration mixtral([] {
  return MakeFamily("mixtral", "MixtralForCausalLM", MixtralPresets());
});
const FamilyRegistration qwen2_moe([] {
  return MakeFamily("qwen2_moe", "Qwen2MoeForCausalLM", Qwen2MoePresets());
});
const FamilyRegistration qwen3_moe([] {
  return MakeFamily("qwen3_moe", "Qwen3MoeForCausalLM", Qwen3MoePresets());
});
const FamilyRegistration glm4_moe([] {
  Family family = MakeFamily("glm4_moe", "Glm4MoeForCausalLM", Glm4MoePresets());
  family.ignored_entry = IsPredictedToken;
  return family;
});
const FamilyRegistration glm4([] { return MakeFamily("glm4", "Glm4ForCausalLM", {}); });

}  // namespace
}  // namespace tessera::models
