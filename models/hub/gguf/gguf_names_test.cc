// SPDX-License-Identifier: Apache-2.0
// What of a configuration GGUF files hold, and what they cannot; tests/parity/gguf_models.py
// compares with llama.cpp.
#include "models/hub/gguf/gguf_names.h"

#include <algorithm>
#include <cmath>

#include "models/hub/gguf/gguf_config.h"
#include "models/hub/gguf/gguf_test_models.h"

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
       {"blk.0.post_attention_norm.weight", "blk.0.post_ffw_norm.weight"}}};
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
      {Small("llama", {{"partial_rotary_factor", 0.5}}), "'partial_rotary_factor': a part"}};
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
  const auto phi = ConfigOfGguf(Opened(without(LongRope(), {"attn_factor"})));
  ASSERT_TRUE(phi.ok()) << Message(phi.status());
  EXPECT_EQ((*phi)["rope_scaling"]["attention_factor"], 1);
}

}  // namespace
}  // namespace tessera::models
