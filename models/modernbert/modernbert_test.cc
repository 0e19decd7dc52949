// SPDX-License-Identifier: Apache-2.0
// tests/parity/modernbert_golden_test.cc compares outputs and gradients with transformers'.
#include "models/modernbert/modernbert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "autograd/autograd.h"
#include "models/family.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

using nlohmann::json;

json SmallConfig(const char* architecture) {
  return {{"model_type", "modernbert"}, {"architectures", {architecture}},
          {"vocab_size", 23},           {"hidden_size", 12},
          {"num_hidden_layers", 4},     {"num_attention_heads", 2},
          {"intermediate_size", 7},     {"max_position_embeddings", 32},
          {"local_attention", 4},       {"initializer_range", 0.3},
          {"pad_token_id", 0},          {"num_labels", 3}};
}

std::unique_ptr<Model> Build(const json& config, nn::BuildContext build = {}) {
  auto model = BuildModel(config, build);
  EXPECT_TRUE(model.ok()) << Message(model.status());
  return *std::move(model);
}

ModernBertConfig Parsed(const json& config) {
  const auto parsed = ModernBertConfig::FromJson(config);
  EXPECT_TRUE(parsed.ok()) << Message(parsed.status());
  return *parsed;
}

std::vector<float> HiddenOf(const Model& model, const Tensor& ids, int64_t token) {
  const Tensor hidden =
      model.Run({{keys::kInputIds, ids}}, {.keep_logits = false}).at(keys::kLastHiddenState);
  return Select(hidden, 1, token).ToVector<float>();
}

TEST(ModernBertTest, CountsOfTheHeads) {
  // transformers' counts of ModernBERT-base with each head.
  const std::pair<const char*, int64_t> counts[] = {
      {"ModernBertModel", 149014272},
      {"ModernBertForMaskedLM", 149655232},
      {"ModernBertForSequenceClassification", 149606402}};
  json config = FindPreset("modernbert-base")->config;
  for (const auto& [architecture, count] : counts) {
    config["architectures"] = {architecture};
    EXPECT_EQ(Build(config, {.device = Device::Meta()})->ParameterCount(), count) << architecture;
  }
}

TEST(ModernBertTest, ParameterNamesAreHuggingFaces) {
  const auto has = [](Model& model, const char* name) {
    return model.FindParameter(name) != nullptr;
  };
  const auto masked = Build(SmallConfig("ModernBertForMaskedLM"));
  for (const char* name :
       {"model.embeddings.tok_embeddings.weight", "model.embeddings.norm.weight",
        "model.layers.0.attn.Wqkv.weight", "model.layers.0.attn.Wo.weight",
        "model.layers.1.attn_norm.weight", "model.layers.0.mlp_norm.weight",
        "model.layers.0.mlp.Wi.weight", "model.layers.0.mlp.Wo.weight", "model.final_norm.weight",
        "head.dense.weight", "head.norm.weight", "decoder.bias"}) {
    EXPECT_TRUE(has(*masked, name)) << name;
  }
  for (const char* name : {"model.layers.0.attn_norm.weight", "model.embeddings.norm.bias",
                           "model.layers.0.attn.Wqkv.bias", "head.dense.bias"}) {
    EXPECT_FALSE(has(*masked, name)) << name;
  }
  EXPECT_EQ(masked->FindParameter("decoder.weight")->tied_to,
            masked->FindParameter("model.embeddings.tok_embeddings.weight"));
  const auto bare = Build(SmallConfig("ModernBertModel"));
  EXPECT_TRUE(has(*bare, "layers.3.attn_norm.weight"));
  EXPECT_TRUE(has(*bare, "final_norm.weight"));
  EXPECT_FALSE(has(*bare, "head.dense.weight"));
  json config = SmallConfig("ModernBertForTokenClassification");
  for (const char* key : {"norm_bias", "attention_bias", "mlp_bias", "classifier_bias"}) {
    config[key] = true;
  }
  const auto biased = Build(config);
  for (const char* name :
       {"model.final_norm.bias", "model.layers.0.attn.Wo.bias", "model.layers.0.mlp.Wi.bias",
        "head.dense.bias", "head.norm.bias", "classifier.bias"}) {
    EXPECT_TRUE(has(*biased, name)) << name;
  }
}

// One layer that slides: token 5 sees two tokens to each side.
TEST(ModernBertTest, LayersThatSlideSeeHalfTheWindowToEachSide) {
  json config = SmallConfig("ModernBertModel");
  config["num_hidden_layers"] = 1;
  config["layer_types"] = {"sliding_attention"};
  const auto changes = [&](int64_t local, int64_t at) {
    config["local_attention"] = local;
    const auto model = Build(config);
    std::vector<int64_t> ids = {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    const std::vector<float> before = HiddenOf(*model, Tensor::FromVector(ids, {1, 11}), 5);
    ids[static_cast<size_t>(at)] = 20;
    return HiddenOf(*model, Tensor::FromVector(ids, {1, 11}), 5) != before;
  };
  for (int64_t at = 0; at < 11; ++at) {
    EXPECT_EQ(changes(4, at), std::abs(at - 5) <= 2) << at;
    EXPECT_EQ(changes(5, at), std::abs(at - 5) <= 2) << at;
    EXPECT_EQ(changes(0, at), at == 5) << at;
  }
  config["layer_types"] = {"full_attention"};
  for (int64_t at = 0; at < 11; ++at) EXPECT_TRUE(changes(4, at)) << at;
}

TEST(ModernBertTest, BothVersionsSayTheSameLayers) {
  json old = SmallConfig("ModernBertModel");
  old["global_attn_every_n_layers"] = 2;
  old["global_rope_theta"] = 500.0;
  old["local_rope_theta"] = 70.0;
  json now = SmallConfig("ModernBertModel");
  now["layer_types"] = {"full_attention", "sliding_attention", "full_attention",
                        "sliding_attention"};
  now["rope_parameters"] = {
      {"full_attention", {{"rope_type", "default"}, {"rope_theta", 500.0}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 70.0}}}};
  for (const json& config : {old, now}) {
    const ModernBertConfig c = Parsed(config);
    EXPECT_EQ(c.slides, (std::vector<bool>{false, true, false, true}));
    EXPECT_EQ(c.rotary.base, 500);
    EXPECT_EQ(c.local_rotary.base, 70);
  }
  // What version 4 does not read is written in its words.
  json saved = now;
  (*FamilyOf(saved))->copies(&saved);
  EXPECT_EQ(saved["global_attn_every_n_layers"], 2);
  EXPECT_EQ(saved["global_rope_theta"], 500.0);
  EXPECT_EQ(saved["local_rope_theta"], 70.0);
  saved = now;
  saved["layer_types"][0] = "sliding_attention";
  (*FamilyOf(saved))->copies(&saved);
  EXPECT_FALSE(saved.contains("global_attn_every_n_layers"));

  const ModernBertConfig defaults = Parsed(SmallConfig("ModernBertModel"));
  EXPECT_EQ(defaults.slides, (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(defaults.rotary.base, 160000);
  EXPECT_EQ(defaults.local_rotary.base, 10000);
  json null = SmallConfig("ModernBertModel");
  null["local_rope_theta"] = nullptr;
  EXPECT_EQ(Parsed(null).local_rotary.base, 160000);
  null["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};  // of every layer
  EXPECT_EQ(Parsed(null).rotary.scaling.factor, 2);
  EXPECT_EQ(Parsed(null).local_rotary.scaling.factor, 2);
}

TEST(ModernBertTest, PaddingChangesNothing) {
  for (const char* pooling : {"cls", "mean"}) {
    json config = SmallConfig("ModernBertForSequenceClassification");
    config["classifier_pooling"] = pooling;
    const auto model = Build(config);
    const Tensor ids = RandomIndices({2, 9}, 23, 1);
    const Tensor padded = Cat({ids, Zeros({2, 3}, DType::kInt64)}, 1);
    const Tensor mask = Cat({Full({2, 9}, 1, DType::kInt64), Zeros({2, 3}, DType::kInt64)}, 1);
    const Tensor alone = model->Run({{keys::kInputIds, ids}}, {}).at(keys::kLogits);
    const Tensor beside =
        model->Run({{keys::kInputIds, padded}, {keys::kAttentionMask, mask}}, {}).at(keys::kLogits);
    const std::vector<float> a = alone.ToVector<float>();
    const std::vector<float> b = beside.ToVector<float>();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << pooling;
  }
}

TEST(ModernBertTest, GradientsMatchFiniteDifferences) {
  for (const auto& [architecture, pooling] : {std::pair("ModernBertForMaskedLM", "cls"),
                                              {"ModernBertForSequenceClassification", "mean"},
                                              {"ModernBertForSequenceClassification", "cls"},
                                              {"ModernBertForTokenClassification", "cls"}}) {
    json config = SmallConfig(architecture);
    config["classifier_pooling"] = pooling;
    config["num_hidden_layers"] = 2;
    for (const char* key : {"norm_bias", "attention_bias", "mlp_bias", "classifier_bias"}) {
      config[key] = true;
    }
    const auto model = Build(config, {.dtype = DType::kFloat64, .seed = 3});
    const Tensor ids = RandomIndices({2, 7}, 23, 1);
    const bool of_rows = std::string(architecture) == "ModernBertForSequenceClassification";
    const Tensor labels = of_rows ? RandomIndices({2}, 3, 2) : RandomIndices({2, 7}, 3, 2);
    const Tensor mask = Full({2, 7}, 1, DType::kInt64);
    mask.data<int64_t>()[13] = 0;
    const auto loss = [&] {
      return model
          ->Run({{keys::kInputIds, ids}, {keys::kAttentionMask, mask}, {keys::kLabels, labels}}, {})
          .at(keys::kLoss);
    };
    Backward(loss());
    // Norms of small embeddings make third derivatives large: a step of 1e-5 is off by 1e-6.
    constexpr double kStep = 1e-6;
    for (nn::Parameter* p : model->Parameters()) {
      if (p->tied_to != nullptr || p->name.find("tok_embeddings") != std::string::npos) continue;
      const std::vector<double> gradient = Grad(p->tensor).ToVector<double>();
      double* const values = p->tensor.Detach().data<double>();
      for (size_t i = 0; i < gradient.size(); i += 1 + gradient.size() / 5) {
        const NoGrad no_grad;
        const double was = values[i];
        values[i] = was + kStep;
        const double above = loss().Item();
        values[i] = was - kStep;
        const double below = loss().Item();
        values[i] = was;
        EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-7) << p->name << "[" << i << "]";
      }
    }
  }
}

TEST(ModernBertTest, TheLastHiddenStateComesAlone) {
  for (const char* architecture :
       {"ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification",
        "ModernBertForTokenClassification"}) {
    const auto model = Build(SmallConfig(architecture));
    const Tensor ids = RandomIndices({2, 5}, 23, 1);
    const Bundle out = model->Run({{keys::kInputIds, ids}}, {.keep_logits = false});
    EXPECT_EQ(out.at(keys::kLastHiddenState).shape(), (Shape{2, 5, 12})) << architecture;
    EXPECT_FALSE(out.has(keys::kLogits)) << architecture;
  }
}

// The head over the tokens to be guessed alone gives the loss of the whole one.
TEST(ModernBertTest, SparsePredictionGivesTheLossOfAllTokens) {
  json config = SmallConfig("ModernBertForMaskedLM");
  config["sparse_prediction"] = true;
  const auto model = Build(config);
  Tensor labels = RandomIndices({2, 5}, 23, 2);
  std::fill_n(labels.data<int64_t>() + 3, 4, int64_t{-100});
  const Bundle in = {{keys::kInputIds, RandomIndices({2, 5}, 23, 1)}, {keys::kLabels, labels}};
  EXPECT_NEAR(model->Run(in, {.keep_logits = false}).at(keys::kLoss).Item(),
              model->Run(in, {}).at(keys::kLoss).Item(), 1e-6);
}

// Of 64000 normal numbers some are beyond three standard deviations.
TEST(ModernBertTest, FirstWeightsAreWithinTheCutoff) {
  for (const auto& [given, cutoff] : {std::pair(json(2.0), 2.0), {json(0.5), 0.5}, {json(), 3.0}}) {
    json config = SmallConfig("ModernBertModel");
    config["vocab_size"] = 2000;
    config["hidden_size"] = 32;
    config["initializer_cutoff_factor"] = given;
    const auto model = Build(config);
    const Tensor table = model->FindParameter("embeddings.tok_embeddings.weight")->tensor.Detach();
    double most = 0;
    for (const float x : table.ToVector<float>()) most = std::max<double>(most, std::abs(x));
    EXPECT_LE(most, 0.3 * cutoff * (1 + 1e-6));
    EXPECT_GT(most, 0.98 * 0.3 * cutoff);
  }
}

TEST(ModernBertTest, RefusesConfigurationsByName) {
  for (const auto& [key, value] : std::vector<std::pair<const char*, json>>{
           {"num_attention_heads", 5},
           {"hidden_size", -4},
           {"hidden_activation", "gelu9"},
           {"classifier_activation", "gelu9"},
           {"classifier_pooling", "max"},
           {"pad_token_id", 99},
           {"attention_dropout", 1.5},
           {"mlp_dropout", -1},
           {"global_attn_every_n_layers", 0},
           {"local_attention", -2},
           {"layer_types", {"full_attention"}},
           {"rope_theta", 1e4},
           {"sliding_window", 64},
           {"rope_parameters", {{"rope_theta", 1e4}}},
           {"partial_rotary_factor", 0.5},
           {"rope_parameters", {{"full_attention", {{"rope_type", "spiral"}}}}},
           {"initializer_cutoff_factor", 0},
           {"problem_type", "ranking"},
           {"architectures", {"ModernBertForQuestionAnswering"}}}) {
    json config = SmallConfig("ModernBertForMaskedLM");
    config[key] = value;
    const std::string message = Message(BuildModel(config, {.device = Device::Meta()}).status());
    EXPECT_NE(message.find(key), std::string::npos) << key << ": " << message;
  }
  json config = SmallConfig("ModernBertForMaskedLM");
  config["sparse_pred_ignore_index"] = 3;
  EXPECT_TRUE(BuildModel(config, {.device = Device::Meta()}).ok());
  config["sparse_prediction"] = true;
  EXPECT_NE(Message(BuildModel(config, {.device = Device::Meta()}).status())
                .find("'sparse_pred_ignore_index' (3)"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::models
