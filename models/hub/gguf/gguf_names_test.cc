// SPDX-License-Identifier: Apache-2.0
// What of a configuration GGUF files hold, and what they cannot; tests/parity/gguf_models.py
// compares with llama.cpp.
#include "models/hub/gguf/gguf_names.h"

#include <algorithm>
#include <cmath>

#include "models/hub/gguf/gguf_config.h"
#include "models/hub/gguf/gguf_test_models.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

json Small(const std::string& type, const json& keys = json::object()) {
  json config = SmallLlama();
  config["model_type"] = type;
  config["num_hidden_layers"] = 4;
  config["pad_token_id"] = nullptr;
  config.update(keys);
  return config;
}

json SmallGemma2(const json& keys = json::object()) {
  json config = Small("gemma2", {{"head_dim", 32},
                                 {"hidden_activation", "gelu_pytorch_tanh"},
                                 {"tie_word_embeddings", true},
                                 {"query_pre_attn_scalar", 32.0},
                                 {"sliding_window", 8},
                                 {"attn_logit_softcapping", 40.0},
                                 {"final_logit_softcapping", 20.0}});
  config.erase("hidden_act");
  config.update(keys);
  return config;
}

json LongRope(const json& keys = json::object()) {
  json config = Small("phi3", {{"partial_rotary_factor", 0.5},
                               {"sliding_window", 16},
                               {"original_max_position_embeddings", 32},
                               {"rope_scaling",
                                {{"rope_type", "longrope"},
                                 {"short_factor", {1.0, 1.25, 1.1, 1.5}},
                                 {"long_factor", {1.0, 2.0, 3.3, 4.0}}}}});
  config["rope_scaling"].update(keys);
  return config;
}

json SmallChatGlm(const json& keys = json::object()) {
  json config = {
      {"model_type", "chatglm"},  {"multi_query_attention", true},   {"padded_vocab_size", 300},
      {"hidden_size", 64},        {"ffn_hidden_size", 96},           {"num_layers", 2},
      {"num_attention_heads", 4}, {"multi_query_group_num", 2},      {"kv_channels", 16},
      {"seq_length", 64},         {"layernorm_epsilon", 1.5625e-07}, {"add_qkv_bias", true},
      {"rope_ratio", 50.0},       {"tie_word_embeddings", false}};
  config.update(keys);
  return config;
}

json SmallGlm(const std::string& type, const json& keys = json::object()) {
  json config =
      Small(type, {{"head_dim", 16}, {"partial_rotary_factor", 0.5}, {"attention_bias", false}});
  config.update(keys);
  return config;
}

json SmallMixtral(const json& keys = json::object()) {
  json config = Small("mixtral", {{"num_local_experts", 5}, {"num_experts_per_tok", 2}});
  config.update(keys);
  return config;
}

json SmallQwenMoe(const std::string& type, const json& keys = json::object()) {
  json config = Small(type, {{"num_experts", 5},
                             {"num_experts_per_tok", 2},
                             {"moe_intermediate_size", 32},
                             {"norm_topk_prob", type == "qwen3_moe"}});
  if (type == "qwen2_moe") config["shared_expert_intermediate_size"] = 64;
  config.update(keys);
  return config;
}

json SmallGlmMoe(const json& keys = json::object()) {
  json config = Small("glm4_moe", {{"partial_rotary_factor", 0.5},
                                   {"n_routed_experts", 6},
                                   {"num_experts_per_tok", 2},
                                   {"moe_intermediate_size", 32},
                                   {"n_shared_experts", 2},
                                   {"first_k_dense_replace", 1},
                                   {"routed_scaling_factor", 1.5},
                                   {"norm_topk_prob", true},
                                   {"n_group", 1},
                                   {"topk_group", 1},
                                   {"use_qk_norm", false},
                                   {"attention_bias", false}});
  config.update(keys);
  return config;
}

// A model, its architecture, and what its file says of it or has.
struct Held {
  const char* name;
  json config;
  const char* architecture;
  std::vector<std::pair<const char*, double>> values = {};
  std::vector<const char*> tensors = {};
};
const std::vector<Held>& AllHeld() {
  static const auto* const all = new std::vector<Held>{
      {"gemma2",
       SmallGemma2(),
       "gemma2",
       {{"attn_logit_softcapping", 40},
        {"final_logit_softcapping", 20},
        {"attention.sliding_window", 8},
        {"attention.key_length", 32}},
       {"blk.1.post_attention_norm.weight", "blk.1.ffn_norm.weight", "blk.1.post_ffw_norm.weight"}},
      {"gemma2_period",
       SmallGemma2(
           {{"layer_types",
             {"sliding_attention", "sliding_attention", "full_attention", "sliding_attention"}}}),
       "gemma2",
       {{"attention.sliding_window_pattern", 3}}},
      {"gemma2_all_slide",
       SmallGemma2({{"layer_types", json(4, "sliding_attention")}}),
       "gemma2",
       {{"attention.sliding_window_pattern", 5}}},
      {"olmo2",
       Small("olmo2"),
       "olmo2",
       {},
       {"blk.3.attn_q_norm.weight", "blk.3.post_attention_norm.weight", "output.weight"}},
      {"smollm3", Small("smollm3", {{"tie_word_embeddings", true}}), "smollm3"},
      {"phi3",
       Small("phi3"),
       "phi3",
       {{"attention.sliding_window", 0}},
       {"blk.0.attn_qkv.weight", "blk.0.ffn_up.weight"}},
      {"phi3_longrope",
       LongRope(),
       "phi3",
       {{"attention.sliding_window", 16},
        {"rope.dimension_count", 8},
        {"rope.scaling.original_context_length", 32},
        {"rope.scaling.attn_factor", std::sqrt(1 + std::log(2.0) / std::log(32.0))}},
       {"rope_factors_long.weight", "rope_factors_short.weight"}},
      {"phi3_attention",
       LongRope({{"attention_factor", 1.25}}),
       "phi3",
       {{"rope.scaling.attn_factor", 1.25}}},
      {"glm",
       SmallGlm("glm", {{"attention_bias", true}}),
       "chatglm",
       {{"rope.dimension_count", 8}},
       {"blk.0.attn_q.bias", "blk.0.ffn_up.weight"}},
      {"chatglm",
       SmallChatGlm(),
       "chatglm",
       {{"rope.dimension_count", 8}, {"rope.freq_base", 500000}},
       {"blk.0.attn_qkv.bias", "blk.1.ffn_up.weight", "output_norm.weight"}},
      {"glm4",
       SmallGlm("glm4", {{"head_dim", 32}, {"partial_rotary_factor", 0.25}}),
       "glm4",
       {{"rope.dimension_count", 8}, {"attention.key_length", 32}},
       {"blk.0.post_attention_norm.weight", "blk.0.post_ffw_norm.weight"}},
      {"mixtral",
       SmallMixtral(),
       "llama",
       {{"expert_count", 5}, {"expert_used_count", 2}, {"feed_forward_length", 96}},
       {"blk.3.ffn_gate_inp.weight", "blk.3.ffn_gate_exps.weight", "blk.3.ffn_up_exps.weight",
        "blk.3.ffn_down_exps.weight"}},
      {"mixtral_window", SmallMixtral({{"sliding_window", 16}}), "llama"},
      {"qwen2_moe",
       SmallQwenMoe("qwen2_moe"),
       "qwen2moe",
       {{"expert_count", 5},
        {"expert_used_count", 2},
        {"expert_feed_forward_length", 32},
        {"expert_shared_feed_forward_length", 64}},
       {"blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_exps.weight",
        "blk.0.ffn_gate_inp_shexp.weight", "blk.0.ffn_gate_shexp.weight",
        "blk.0.ffn_up_shexp.weight", "blk.0.ffn_down_shexp.weight", "blk.0.attn_q.bias"}},
      {"qwen2_moe_unbiased", SmallQwenMoe("qwen2_moe", {{"qkv_bias", false}}), "qwen2moe"},
      {"qwen3_moe",
       SmallQwenMoe("qwen3_moe", {{"tie_word_embeddings", true}, {"head_dim", 32}}),
       "qwen3moe",
       {{"expert_count", 5}, {"expert_feed_forward_length", 32}, {"attention.key_length", 32}},
       {"blk.2.ffn_down_exps.weight", "blk.2.attn_q_norm.weight"}},
      {"one_expert",
       SmallQwenMoe("qwen3_moe", {{"num_experts", 1}, {"num_experts_per_tok", 1}}),
       "qwen3moe",
       {{"expert_count", 1}}},
      {"glm4_moe",
       SmallGlmMoe(),
       "glm4moe",
       {{"expert_count", 6},
        {"expert_shared_count", 2},
        {"expert_feed_forward_length", 32},
        {"leading_dense_block_count", 1},
        {"expert_gating_func", 2},
        {"expert_weights_scale", 1.5},
        {"rope.dimension_count", 8}},
       {"blk.0.ffn_gate.weight", "blk.0.post_attention_norm.weight", "blk.1.ffn_gate_inp.weight",
        "blk.1.exp_probs_b.bias", "blk.1.ffn_up_exps.weight", "blk.1.ffn_down_shexp.weight"}},
      {"glm4_moe_groups",
       SmallGlmMoe({{"n_group", 3},
                    {"topk_group", 2},
                    {"use_qk_norm", true},
                    {"attention_bias", true},
                    {"norm_topk_prob", false},
                    {"first_k_dense_replace", 3}}),
       "glm4moe",
       {{"expert_group_count", 3}, {"expert_group_used_count", 2}},
       {"blk.2.ffn_up.weight", "blk.3.ffn_up_exps.weight", "blk.0.attn_k_norm.weight"}}};
  return *all;
}

class HeldTest : public GgufTest, public testing::WithParamInterface<size_t> {};

TEST_P(HeldTest, ComesBack) {
  const Held& held = AllHeld()[GetParam()];
  ExpectRoundTrip(Saved("m", held.config));
  const json back = *ReadJsonFile(Path("back/config.json"));
  json config = held.config;
  if (held.name == std::string("gemma2_all_slide")) config.erase("layer_types");
  for (const auto& [key, value] : config.items()) {
    if (value.is_number_float()) {
      EXPECT_EQ(back[key].get<double>(), value.get<double>()) << key;
    } else if (!value.is_null()) {
      EXPECT_EQ(back[key], value) << key;
    }
  }
  const GgufFile file = Opened(Path("a.gguf"));
  std::string architecture;
  ASSERT_TRUE(file.Read("general.architecture", &architecture).ok());
  EXPECT_EQ(architecture, held.architecture);
  for (const auto& [key, expected] : held.values) {
    double value = -1;
    ASSERT_TRUE(file.Read(Concat(architecture, ".", key), &value).ok()) << key;
    EXPECT_NEAR(value, expected, 1e-6 * expected) << key;
  }
  for (const char* tensor : held.tensors) EXPECT_NE(file.Find(tensor), nullptr) << tensor;
  const auto model = LoadModel(Path("back"), {.require_weights = true});
  EXPECT_TRUE(model.ok()) << Message(model.status());
}

INSTANTIATE_TEST_SUITE_P(Types, HeldTest, testing::Range<size_t>(0, AllHeld().size()),
                         [](const auto& info) { return AllHeld()[info.param].name; });

TEST(GgufNamesTest, WhatAnArchitectureCannotComputeIsRefusedByItsKey) {
  struct Case {
    json config;
    const char* message;
  };
  const json linear = {{"rope_type", "linear"}, {"factor", 2.0}};
  json gemma3 = SmallGemma3();
  gemma3["final_logit_softcapping"] = 30.0;
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 16}};
  const Case cases[] = {
      {SmallGemma2({{"attn_logit_softcapping", nullptr}}), "'attn_logit_softcapping': no cap"},
      {SmallGemma2({{"final_logit_softcapping", nullptr}}), "'final_logit_softcapping': no cap"},
      {SmallGemma2({{"query_pre_attn_scalar", 16}}), "'query_pre_attn_scalar': another size"},
      {SmallGemma2({{"tie_word_embeddings", false}}), "'tie_word_embeddings': false"},
      {SmallGemma2({{"attention_bias", true}}), "'attention_bias': true"},
      {gemma3, "'final_logit_softcapping': a cap"},
      {Small("olmo2", {{"tie_word_embeddings", true}}), "'tie_word_embeddings': true"},
      {Small("olmo2", {{"attention_bias", true}}), "'attention_bias': true"},
      {Small("olmo2", {{"head_dim", 32}}), "'head_dim': another size than 64 / 4"},
      {Small("olmo2", {{"rope_scaling", llama3}}),
       "'rope_scaling': the scaling of Llama 3 or LongRoPE in olmo2"},
      {Small("llama", {{"head_dim", 8}, {"rope_scaling", LongRope()["rope_scaling"]}}),
       "'rope_scaling': the scaling of Llama 3 or LongRoPE in llama"},
      {Small("smollm3", {{"no_rope_layer_interval", 3}}), "'no_rope_layers': another list"},
      {Small("smollm3", {{"no_rope_layers", {1, 1, 1, 1}}}), "'no_rope_layers': another list"},
      {Small("smollm3", {{"mlp_bias", true}}), "'mlp_bias': true"},
      {Small("smollm3", {{"attention_bias", true}}), "'attention_bias': true"},
      {Small("smollm3", {{"use_sliding_window", true}, {"sliding_window", 8}}),
       "'sliding_window': a window"},
      {Small("phi3", {{"head_dim", 32}}), "'head_dim': another size"},
      {SmallGlm("glm", {{"head_dim", 32}}), "'head_dim': another size"},
      {SmallGlm("glm4", {{"hidden_act", "gelu"}}), "'hidden_act': gelu"},
      {SmallChatGlm({{"add_bias_linear", true}}), "'add_bias_linear': true"},
      {Small("llama", {{"partial_rotary_factor", 0.5}}), "'partial_rotary_factor' must be 1"},
      {Small("mistral", {{"num_hidden_layers", 2},
                         {"sliding_window", 8},
                         {"layer_types", {"full_attention", "sliding_attention"}}}),
       "'sliding_window': a window of some layers"},
      {SmallMixtral({{"expert_capacity_factor", 1.0}}), "'expert_capacity_factor': a limit"},
      {SmallQwenMoe("qwen2_moe", {{"norm_topk_prob", true}}), "'norm_topk_prob': true"},
      {SmallQwenMoe("qwen3_moe", {{"norm_topk_prob", false}}), "'norm_topk_prob': false"},
      {SmallQwenMoe("qwen3_moe", {{"mlp_only_layers", {2}}}),
       "'mlp_only_layers': a layer without experts"},
      {SmallQwenMoe("qwen2_moe", {{"decoder_sparse_step", 2}}),
       "'decoder_sparse_step': a layer without experts"},
      {SmallQwenMoe("qwen2_moe", {{"tie_word_embeddings", true}}), "'tie_word_embeddings': true"},
      {SmallQwenMoe("qwen2_moe", {{"head_dim", 32}}), "'head_dim': another size"},
      {SmallQwenMoe("qwen3_moe", {{"attention_bias", true}}), "'attention_bias': true"},
      {SmallGlmMoe({{"n_shared_experts", 0}}), "'n_shared_experts': 0"}};
  for (const Case& c : cases) {
    const auto names = GgufNames::Of(c.config);
    ASSERT_FALSE(names.ok()) << c.message;
    EXPECT_NE(Message(names.status()).find(c.message), std::string::npos)
        << Message(names.status());
  }
  EXPECT_TRUE(GgufNames::Of(SmallGlm("glm4", {{"rope_scaling", linear}})).ok());
}

// Older files of Gemma 2 leave caps and the window out; of LongRoPE there are both lists.
TEST_F(GgufTest, KeysThatAFileLeavesOut) {
  const auto without = [this](const json& config, const std::vector<std::string>& keys) {
    EXPECT_TRUE(ConvertToGguf(Saved("m", config), Path("m.gguf")).ok());
    const GgufFile file = Opened(Path("m.gguf"));
    GgufMetadata metadata = file.metadata();
    std::erase_if(metadata, [&](const auto& pair) {
      return std::ranges::any_of(keys, [&](const auto& key) { return pair.first.ends_with(key); });
    });
    return WithMetadata(file, metadata, "x.gguf");
  };
  const auto gemma = ConfigOfGguf(
      Opened(without(SmallGemma2(), {"logit_softcapping", "attention.sliding_window"})));
  ASSERT_TRUE(gemma.ok()) << Message(gemma.status());
  EXPECT_EQ((*gemma)["attn_logit_softcapping"], 50);
  EXPECT_EQ((*gemma)["final_logit_softcapping"], 30);
  EXPECT_EQ((*gemma)["sliding_window"], 4096);
  // llama.cpp's models of vectors may look both ways.
  for (const json& config : {SmallGemma2(), SmallGpt()}) {
    EXPECT_TRUE(ConvertToGguf(Saved("m", config), Path("m.gguf")).ok());
    const GgufFile file = Opened(Path("m.gguf"));
    const std::string key = Concat(config["model_type"].get<std::string>(), ".attention.causal");
    for (const bool causal : {true, false}) {
      GgufMetadata metadata = file.metadata();
      metadata.emplace_back(key, causal);
      const auto read = ConfigOfGguf(Opened(WithMetadata(file, metadata, "x.gguf")));
      EXPECT_EQ(Message(read.status()),
                causal ? "" : Path("x.gguf") + ": key '" + key + "' must be true, not false");
    }
  }
  const auto phi = ConfigOfGguf(Opened(without(LongRope(), {"attn_factor"})));
  ASSERT_TRUE(phi.ok()) << Message(phi.status());
  EXPECT_EQ((*phi)["rope_scaling"]["attention_factor"], 1);
}

}  // namespace
}  // namespace tessera::models
