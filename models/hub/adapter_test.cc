// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/json_text.h"
#include "core/safetensors.h"
#include "models/family.h"
#include "models/hub/adapter_folder.h"
#include "models/hub/convert_model.h"
#include "models/hub/load_model.h"
#include "models/hub/save_model.h"
#include "models/hub/weight_file.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/testing/op_check.h"

namespace tessera::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kVocabulary = 31;

struct Case {
  const char* name;
  json model;
  json adapter;         // beside r, lora_alpha and peft_type
  size_t layers;        // that it changes
  bool unties = false;  // it changes one of two tied weights
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

json Gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", kVocabulary},
          {"n_positions", 8},     {"n_embd", 12},
          {"n_layer", 2},         {"n_head", 3}};
}
json Llama(bool tied) {
  return {{"model_type", "llama"},      {"vocab_size", kVocabulary},
          {"hidden_size", 12},          {"intermediate_size", 17},
          {"num_hidden_layers", 2},     {"num_attention_heads", 3},
          {"num_key_value_heads", 1},   {"head_dim", 4},
          {"tie_word_embeddings", tied}};
}
json Bert() {
  return {{"model_type", "bert"},
          {"architectures", {"BertForSequenceClassification"}},
          {"vocab_size", kVocabulary},
          {"hidden_size", 12},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"intermediate_size", 17},
          {"max_position_embeddings", 8},
          {"num_labels", 3}};
}
json T5() {
  return {{"model_type", "t5"}, {"vocab_size", kVocabulary}, {"d_model", 12}, {"d_kv", 5},
          {"d_ff", 17},         {"num_layers", 2},           {"num_heads", 2}};
}
json ChatGlm() {
  return {{"model_type", "chatglm"},  {"vocab_size", kVocabulary}, {"hidden_size", 16},
          {"num_layers", 2},          {"num_attention_heads", 2},  {"inner_hidden_size", 17},
          {"max_sequence_length", 8}, {"bos_token_id", 28},        {"eos_token_id", 29},
          {"mask_token_id", 26},      {"gmask_token_id", 27},      {"pad_token_id", 3}};
}

json Gemma() {
  json config = Llama(true);
  config["model_type"] = "gemma3_text";
  return config;
}
json BertOf(const char* architecture) {
  json config = Bert();
  config["architectures"] = {architecture};
  return config;
}
json Vit() {
  return {{"model_type", "vit"},      {"architectures", {"ViTForImageClassification"}},
          {"hidden_size", 12},        {"num_hidden_layers", 2},
          {"num_attention_heads", 2}, {"intermediate_size", 17},
          {"image_size", 8},          {"patch_size", 4},
          {"num_labels", 3}};
}

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {"gpt2", Gpt2(), {{"target_modules", {"c_attn"}}, {"fan_in_fan_out", true}}, 2},
      {"gpt2_default", Gpt2(), json::object(), 2},
      {"gpt2_all_linear", Gpt2(), {{"target_modules", "all-linear"}}, 8},
      {"gpt2_dora", Gpt2(), {{"target_modules", {"c_proj"}}, {"use_dora", true}}, 4},
      {"gpt2_tables",
       Gpt2(),
       {{"target_modules", {"wte", "wpe", "c_attn"}}, {"use_dora", true}},
       4,
       true},
      {"gpt2_saves_positions", Gpt2(), {{"modules_to_save", {"wpe", "ln_f", "nowhere"}}}, 2},
      {"llama",
       Llama(false),
       {{"target_modules", {"q_proj", "v_proj"}},
        {"use_rslora", true},
        {"rank_pattern", {{"layers.1.self_attn.v_proj", 5}}},
        {"alpha_pattern", {{"q_proj", 3}}}},
       4},
      {"llama_head", Llama(true), {{"target_modules", {"lm_head", "o_proj"}}}, 3, true},
      {"llama_table",
       Llama(false),
       {{"target_modules", ".*embed_tokens"}, {"rank_pattern", {{"embed_tokens", 5}}}},
       1},
      {"llama_tied_table", Llama(true), {{"target_modules", {"embed_tokens"}}}, 1, true},
      {"llama_table_and_head",
       Llama(true),
       {{"target_modules", {"embed_tokens", "lm_head"}}, {"use_rslora", true}},
       2,
       true},
      {"llama_norms", Llama(false), {{"modules_to_save", {"norm"}}}, 4},
      {"llama_saves_head", Llama(false), {{"modules_to_save", {"lm_head"}}}, 4},
      {"llama_pattern",
       Llama(false),
       {{"target_modules", ".*layers\\.0\\..*(up|down)_proj"}, {"bias", "all"}},
       2},
      {"gemma_table", Gemma(), {{"target_modules", {"embed_tokens", "q_proj"}}}, 3, true},
      {"bert",
       Bert(),
       {{"target_modules", {"query", "value"}},
        {"modules_to_save", {"classifier", "score"}},
        {"bias", "lora_only"},
        {"task_type", "SEQ_CLS"}},
       4},
      {"bert_tables",
       Bert(),
       {{"target_modules", {"word_embeddings", "position_embeddings", "token_type_embeddings"}}},
       3},
      {"bert_tokens",
       BertOf("BertForTokenClassification"),
       {{"modules_to_save", {"classifier", "score"}}, {"bias", "all"}},
       4},
      {"bert_decoder",
       BertOf("BertForMaskedLM"),
       {{"target_modules", {"query", "decoder"}}, {"bias", "lora_only"}},
       3,
       true},
      {"t5",
       T5(),
       {{"target_modules", {"q", "v"}}, {"layers_to_transform", {1}}, {"layers_pattern", "block"}},
       6},
      {"t5_head", T5(), {{"target_modules", {"lm_head", "wi"}}}, 5, true},
      {"chatglm", ChatGlm(), {{"target_modules", {"query_key_value"}}}, 2},
      {"vit", Vit(), {{"target_modules", {"query", "value"}}, {"bias", "lora_only"}}, 4},
      {"vit_by_names_of_version_5",
       Vit(),
       {{"target_modules", {"q_proj", "o_proj", "fc2"}}, {"modules_to_save", {"layernorm_after"}}},
       6},
      {"vit_by_a_pattern_of_both", Vit(), {{"target_modules", ".*(dense|fc1)"}}, 6},
  };
  return *cases;
}

Bundle Inputs(const json& config) {
  if (config.at("model_type") == "vit") {
    return {{keys::kPixelValues, CastCopy(RandomTensor({2, 3, 8, 8}, 3), DType::kFloat32)}};
  }
  const Tensor ids = RandomIndices({2, 6}, 26, 3);
  Bundle in = {{keys::kInputIds, ids}};
  const std::string type = config.at("model_type");
  if (type == "t5") in.set(keys::kDecoderInputIds, RandomIndices({2, 4}, 26, 4));
  if (type == "chatglm") {
    for (int64_t b = 0; b < 2; ++b) {
      ids.data<int64_t>()[b * 6 + 2] = 27;
      ids.data<int64_t>()[b * 6 + 3] = 28;
    }
  }
  return in;
}

Tensor LogitsOf(const Model& model, int adapter = 0) {
  const NoGrad no_grad;
  return model.Run(Inputs(model.config()), {.context = {.adapter = adapter}}).at(keys::kLogits);
}

double MaxDifference(const Tensor& a, const Tensor& b) {
  const std::vector<float> x = a.ToVector<float>(), y = b.ToVector<float>();
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) most = std::max<double>(most, std::abs(x[i] - y[i]));
  return most;
}

class AdapterTest : public testing::Test {
 protected:
  AdapterTest() : root_(testing::TempDir() + "/adapter_" + Name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  static std::string Name() {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(name.begin(), name.end(), '/', '_');
    return name;
  }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }

  std::string SaveBase(const json& config) const {
    auto model = BuildModel(config, {.seed = 3});
    EXPECT_TRUE(model.ok()) << Message(model.status());
    const Status saved = SaveModel(**model, Path("base"));
    EXPECT_TRUE(saved.ok()) << Message(saved);
    return Path("base");
  }
  static json AdapterJson(const json& changes) {
    json config = {{"peft_type", "LORA"}, {"r", 3}, {"lora_alpha", 6}};
    config.update(changes);
    return config;
  }
  static AdapterConfig Config(const json& changes) {
    auto config = AdapterConfig::FromJson(AdapterJson(changes), "here");
    EXPECT_TRUE(config.ok()) << Message(config.status());
    return *std::move(config);
  }
  // Of numbers, not of zeros.
  static void Randomise(const AttachedAdapter& adapter, uint64_t seed) {
    for (nn::Parameter* p : ParametersOf(adapter)) {
      p->init = nn::Init::Normal(0.3);
      nn::InitialiseParameter(*p, seed);
    }
  }
  std::string SaveRandomAdapter(const std::string& base, const json& changes, uint64_t seed = 7,
                                const std::string& name = "adapter") const {
    auto model = LoadModel(base);
    EXPECT_TRUE(model.ok()) << Message(model.status());
    const AdapterConfig config = Config(changes);
    auto attached = AttachAdapter(**model, config);
    EXPECT_TRUE(attached.ok()) << Message(attached.status());
    Randomise(*attached, seed);
    const Status saved = SaveAdapter(**model, config, *attached, Path(name));
    EXPECT_TRUE(saved.ok()) << Message(saved);
    return Path(name);
  }
  static std::unique_ptr<Model> Load(const std::string& base,
                                     const std::vector<std::string>& adapters, bool map = false) {
    auto model =
        LoadModel(base, {.require_weights = true, .map_weights = map, .adapters = adapters});
    EXPECT_TRUE(model.ok()) << Message(model.status());
    return *std::move(model);
  }

  const std::string root_;
};

class AdapterFamiliesTest : public AdapterTest, public testing::WithParamInterface<Case> {};

TEST_P(AdapterFamiliesTest, SavedLoadedAndMergedItIsTheSame) {
  const Case& c = GetParam();
  const std::string base = SaveBase(c.model);
  const auto model = Load(base, {});
  const Tensor plain = LogitsOf(*model);
  const AdapterConfig config = Config(c.adapter);
  const auto attached = AttachAdapter(*model, config);
  ASSERT_TRUE(attached.ok()) << Message(attached.status());
  EXPECT_EQ(attached->terms.size(), c.layers);
  ExpectClose(LogitsOf(*model), plain, 1e-6, "a new adapter changes nothing");
  Randomise(*attached, 7);
  const Tensor adapted = LogitsOf(*model);
  EXPECT_GT(MaxDifference(adapted, plain), 1e-3);
  const bool replaces = !attached->replaced.empty();
  if (!replaces) {
    EXPECT_EQ(LogitsOf(*model, nn::ForwardContext::kNoAdapter).ToVector<float>(),
              plain.ToVector<float>());
  }

  const Status saved = SaveAdapter(*model, config, *attached, Path("adapter"));
  ASSERT_TRUE(saved.ok()) << Message(saved);
  for (const bool map : {false, true}) {
    EXPECT_EQ(LogitsOf(*Load(base, {Path("adapter")}, map)).ToVector<float>(),
              adapted.ToVector<float>());
  }
  const Status merged = ConvertModel(base, Path("merged"), {.adapter = Path("adapter")});
  ASSERT_TRUE(merged.ok()) << Message(merged);
  const auto whole = Load(Path("merged"), {});
  ExpectClose(LogitsOf(*whole), adapted, 1e-5, "merged");
  EXPECT_EQ(whole->config().value("tie_word_embeddings", false),
            c.model.value("tie_word_embeddings", false) && !c.unties);
}

TEST_P(AdapterFamiliesTest, OnlyWhatItHasTrains) {
  const auto model = Load(SaveBase(GetParam().model), {});
  const int64_t all = model->ParameterCount();
  const auto attached = AttachAdapter(*model, Config(GetParam().adapter));
  ASSERT_TRUE(attached.ok());
  TrainOnly(*model, *attached);
  int64_t own = 0;
  for (const nn::Parameter* p : ParametersOf(*attached)) own += p->tensor.numel();
  EXPECT_EQ(model->ParameterCount(/*trainable_only=*/true), own);
  EXPECT_LT(own, all);
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterFamiliesTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return std::string(info.param.name); });

// PEFT's names, layouts and shapes.
TEST_F(AdapterTest, TheFolderIsPefts) {
  const std::string folder =
      SaveRandomAdapter(SaveBase(Bert()), {{"target_modules", {"query"}},
                                           {"modules_to_save", {"classifier"}},
                                           {"bias", "lora_only"},
                                           {"use_dora", true}});
  const auto file = SafetensorsFile::Open(folder + "/adapter_model.safetensors");
  ASSERT_TRUE(file.ok()) << Message(file.status());
  const std::string layer = "base_model.model.bert.encoder.layer.1.attention.self.query.";
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(file->Find(layer + "lora_A.weight")->shape, (Sizes{3, 12}));
  EXPECT_EQ(file->Find(layer + "lora_B.weight")->shape, (Sizes{12, 3}));
  EXPECT_EQ(file->Find(layer + "lora_magnitude_vector")->shape, (Sizes{12}));
  EXPECT_EQ(file->Find(layer + "base_layer.bias")->shape, (Sizes{12}));
  EXPECT_EQ(file->Find("base_model.model.classifier.weight")->shape, (Sizes{3, 12}));
  EXPECT_EQ(file->entries().size(), 2u * 4 + 2);
  const auto config = ReadJsonFile(folder + "/adapter_config.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->at("peft_type"), "LORA");
  EXPECT_EQ(config->at("fan_in_fan_out"), false);
  EXPECT_EQ(config->at("target_modules"), json({"query"}));
  EXPECT_EQ(config->at("lora_alpha"), 6);
}

TEST_F(AdapterTest, SeveralOverOneBase) {
  const std::string base = SaveBase(Llama(false));
  const std::string one = SaveRandomAdapter(base, {{"target_modules", {"q_proj"}}}, 1, "one");
  const std::string two =
      SaveRandomAdapter(base, {{"target_modules", {"q_proj", "up_proj"}}}, 2, "two");
  const Tensor with_one = LogitsOf(*Load(base, {one}));
  const Tensor with_two = LogitsOf(*Load(base, {two}));
  const auto both = Load(base, {one, two}, /*map=*/true);
  EXPECT_EQ(LogitsOf(*both, 0).ToVector<float>(), with_one.ToVector<float>());
  EXPECT_EQ(LogitsOf(*both, 1).ToVector<float>(), with_two.ToVector<float>());
  EXPECT_EQ(LogitsOf(*both, nn::ForwardContext::kNoAdapter).ToVector<float>(),
            LogitsOf(*Load(base, {})).ToVector<float>());
}

TEST_F(AdapterTest, WhatDoesNotFitIsRefusedByName) {
  const std::string base = SaveBase(Llama(false));
  const std::string tied_base = Path("tied");
  ASSERT_TRUE(SaveModel(**BuildModel(Llama(true), {.seed = 3}), tied_base).ok());
  const std::string folder = SaveRandomAdapter(base, {{"target_modules", {"q_proj"}}});
  const auto failure = [&](const std::string& model, const std::string& adapter) {
    const auto loaded = LoadModel(model, {.adapters = {adapter}});
    EXPECT_FALSE(loaded.ok());
    return Message(loaded.status());
  };
  EXPECT_EQ(failure(base, base), "'" + base + "' is no adapter: it has no adapter_config.json");
  // For another base: other names, or other sizes.
  json wide = Llama(false);
  wide["hidden_size"] = 16;
  ASSERT_TRUE(SaveModel(**BuildModel(wide, {.seed = 3}), Path("wide")).ok());
  EXPECT_EQ(failure(Path("wide"), folder),
            folder +
                "/adapter_model.safetensors: "
                "'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight' is F32 "
                "[3, 12]; for this model it must be a floating [3, 16]");
  ASSERT_TRUE(SaveModel(**BuildModel(Gpt2(), {.seed = 3}), Path("gpt2")).ok());
  EXPECT_NE(failure(Path("gpt2"), folder).find("target_modules name no linear layer of this model"),
            std::string::npos);
  json deep = Llama(false);
  deep["num_hidden_layers"] = 1;
  ASSERT_TRUE(SaveModel(**BuildModel(deep, {.seed = 3}), Path("shallow")).ok());
  EXPECT_NE(failure(Path("shallow"), folder).find("this model has no place for"),
            std::string::npos);
  deep["num_hidden_layers"] = 3;
  ASSERT_TRUE(SaveModel(**BuildModel(deep, {.seed = 3}), Path("deep")).ok());
  EXPECT_NE(failure(Path("deep"), folder).find("missing are"), std::string::npos);

  const auto problem = [](const json& changes) {
    return Message(AdapterConfig::FromJson(AdapterJson(changes), "a.json").status());
  };
  EXPECT_EQ(problem({{"peft_type", "IA3"}}),
            "a.json: 'peft_type' is 'IA3'; supported are LORA and PREFIX_TUNING");
  EXPECT_EQ(problem({{"r", 0}}), "a.json: 'r' must be at least 1, not 0");
  EXPECT_EQ(problem({{"r", int64_t{1} << 40}}),
            "a.json: 'r' must be at most 1048576, not 1099511627776");
  EXPECT_EQ(problem({{"lora_dropout", 1}}), "a.json: 'lora_dropout' must be below 1, not 1");
  EXPECT_EQ(problem({{"rank_pattern", {{"q_proj", nullptr}}}}),
            "a.json: 'rank_pattern' has null for 'q_proj'");
  EXPECT_EQ(problem({{"alpha_pattern", {{"q_proj", 0}}}}),
            "a.json: 'alpha_pattern' of 'q_proj' must be above 0, not 0");
  EXPECT_EQ(problem({{"init_lora_weights", "false"}}),
            "a.json: 'init_lora_weights': \"false\" is not supported");
  EXPECT_EQ(problem({{"init_lora_weights", "eva"}, {"eva_config", {{"rho", 2.0}}}}), "");
  EXPECT_EQ(problem({{"lora_bias", true}}), "a.json: 'lora_bias': true is not supported");
  EXPECT_EQ(problem({{"bias", "some"}}),
            "a.json: 'bias' 'some' is not known; use one of none, all, lora_only");
  EXPECT_NE(problem({{"target_modules", "(q"}}).find("'target_modules' has a bad pattern"),
            std::string::npos);
  const auto attach = [&](const std::string& model, const json& changes) {
    return Message(AttachAdapter(*Load(model, {}), Config(changes)).status());
  };
  const json both = {{"q_proj", 4}, {"layers.0.self_attn.q_proj", 2}};
  for (const char* key : {"rank_pattern", "alpha_pattern"}) {
    EXPECT_EQ(attach(base, {{"target_modules", {"q_proj"}}, {key, both}}),
              Concat("adapter_config.json: '", key,
                     "' has two values for 'model.layers.0.self_attn.q_proj': 2 "
                     "('layers.0.self_attn.q_proj') and 4 ('q_proj'); keep one"));
  }
  EXPECT_NE(attach(tied_base, {{"target_modules", {"q_proj"}}, {"modules_to_save", {"lm_head"}}})
                .find("modules_to_save name 'lm_head', whose weight is tied"),
            std::string::npos);
  EXPECT_EQ(attach(tied_base, {{"target_modules", {"lm_head"}}, {"ensure_weight_tying", true}}),
            "ensure_weight_tying: matrices that two modules share do not train");
  EXPECT_EQ(attach(base, {{"target_modules", {"q_proj"}}, {"modules_to_save", {"proj"}}}),
            "the adapter's target_modules and modules_to_save both name "
            "'model.layers.0.self_attn.q_proj'; a module is adapted or saved whole");
  EXPECT_EQ(
      attach(base, {{"target_modules", {"q_proj", "norm"}}}),
      "the adapter's target_modules name 'model.norm', which is neither a linear layer nor an "
      "embedding");
  AdapterConfig pissa = Config({{"target_modules", {"embed_tokens"}}});
  pissa.init = "pissa";
  EXPECT_EQ(Message(AttachAdapter(*Load(base, {}), pissa).status()),
            "init_lora_weights is pissa, and target_modules name the embedding "
            "'model.embed_tokens', which cannot begin so");
  const auto missing =
      ModulesNotThere(*Load(base, {}), Config({{"modules_to_save", {"norm", "score"}}}));
  ASSERT_TRUE(missing.ok());
  EXPECT_EQ(*missing, std::vector<std::string>{"score"});
}

// Entries by name, which a file is made of.
using Tensors = std::map<std::string, Tensor>;
Tensors EntriesOf(const std::string& folder) {
  const auto file = WeightFile::Open(folder + "/adapter_model.safetensors");
  EXPECT_TRUE(file.ok()) << Message(file.status());
  Tensors tensors;
  for (const WeightEntry& entry : file->entries()) tensors[entry.name] = *file->Read(entry.name);
  return tensors;
}
void WriteEntries(const std::string& folder, const Tensors& tensors) {
  std::vector<NamedTensorView> views;
  for (const auto& [name, t] : tensors) {
    views.push_back({name,
                     {.shape = {t.shape().begin(), t.shape().end()},
                      .data = static_cast<const std::byte*>(t.raw_data()),
                      .nbytes = static_cast<int64_t>(t.nbytes())}});
  }
  const Status written = WriteSafetensors(folder + "/adapter_model.safetensors", views);
  ASSERT_TRUE(written.ok()) << Message(written);
}
std::vector<float> ValuesOf(Model& model, const std::string& parameter) {
  return model.FindParameter(parameter)->tensor.Detach().ToVector<float>();
}

// PEFT writes tables and heads of the base beside the adapter where these are adapted
// (`base_layer`), or save_embedding_layers says so: they are what the adapter goes on.
TEST_F(AdapterTest, EntriesOfTheBaseReplaceIt) {
  for (const bool tied : {false, true}) {
    const std::string base = SaveBase(Llama(tied));
    const std::string folder = SaveRandomAdapter(base, {{"target_modules", {"lm_head"}}});
    const std::string begin = "base_model.model.";
    const Tensors plain = EntriesOf(folder);
    const auto model = Load(base, {});
    const Tensor alone = LogitsOf(*Load(base, {folder}));
    Tensors same = plain;
    same[begin + "lm_head.base_layer.weight"] =
        CastCopy(model->FindParameter("lm_head.weight")->tensor.Detach(), DType::kFloat32);
    WriteEntries(folder, same);
    EXPECT_EQ(LogitsOf(*Load(base, {folder}, /*map=*/true)).ToVector<float>(),
              alone.ToVector<float>());
    // As one of several, too.
    const auto second = Load(base, {SaveRandomAdapter(base, json::object(), 9, "first"), folder});
    EXPECT_EQ(LogitsOf(*second, 1).ToVector<float>(), alone.ToVector<float>());

    Tensors other = same;
    other[begin + "lm_head.base_layer.weight"] =
        Mul(same.at(begin + "lm_head.base_layer.weight"), 2);
    if (!tied) {
      other[begin + "model.embed_tokens.weight"] =
          CastCopy(Mul(model->FindParameter("model.embed_tokens.weight")->tensor.Detach(), 3),
                   DType::kFloat32);
    }
    WriteEntries(folder, other);
    // The base that it was on.
    const auto changed = LoadModel(base);
    ASSERT_TRUE(changed.ok());
    for (const auto& [name, factor] :
         {std::pair<const char*, double>("lm_head.weight", 2), {"model.embed_tokens.weight", 3}}) {
      if (tied && factor == 3) continue;
      Tensor values = (*changed)->FindParameter(name)->tensor.Detach();
      CopyInto(values, Mul(values, factor));
    }
    ASSERT_TRUE(SaveModel(**changed, Path("changed")).ok());
    const std::string on_changed =
        SaveRandomAdapter(Path("changed"), {{"target_modules", {"lm_head"}}}, 7, "on_changed");
    const Tensor expected = LogitsOf(*Load(Path("changed"), {on_changed}));
    EXPECT_GT(MaxDifference(expected, alone), 1e-3);
    for (const bool map : {false, true}) {
      EXPECT_EQ(LogitsOf(*Load(base, {folder}, map)).ToVector<float>(), expected.ToVector<float>());
    }
    const std::string merged = Path(tied ? "tied_merged" : "merged");
    ASSERT_TRUE(ConvertModel(base, merged, {.adapter = folder}).ok());
    ExpectClose(LogitsOf(*Load(merged, {})), expected, 1e-5, "merged");
    // Written again it has them still.
    const auto loaded = LoadModel(base);
    const auto attached = LoadAdapter(**loaded, folder);
    ASSERT_TRUE(attached.ok()) << Message(attached.status());
    const Status saved =
        SaveAdapter(**loaded, *AdapterConfig::Read(folder), *attached, Path("again"));
    ASSERT_TRUE(saved.ok()) << Message(saved);
    EXPECT_EQ(LogitsOf(*Load(base, {Path("again")})).ToVector<float>(), expected.ToVector<float>());
    // Another adapter of the same model has the base as it is.
    const std::string first = SaveRandomAdapter(base, json::object(), 9, "first");
    const auto refused = LoadModel(base, {.adapters = {first, folder}});
    EXPECT_NE(
        Message(refused.status()).find("only the first adapter of a model may have a base of"),
        std::string::npos)
        << Message(refused.status());
    // Of another size, or of no parameter at all.
    other[begin + "lm_head.base_layer.weight"] = Zeros({kVocabulary + 1, 12}, DType::kFloat32);
    WriteEntries(folder, other);
    EXPECT_EQ(Message(LoadModel(base, {.adapters = {folder}}).status()),
              folder +
                  "/adapter_model.safetensors: 'base_model.model.lm_head.base_layer.weight' is "
                  "F32 [32, 12]; for this model it must be a floating [31, 12]");
    other = plain;
    other[begin + "lm_tail.weight"] = Zeros({2, 12}, DType::kFloat32);
    WriteEntries(folder, other);
    EXPECT_NE(Message(LoadModel(base, {.adapters = {folder}}).status())
                  .find("this model has no place for 'base_model.model.lm_tail.weight'"),
              std::string::npos);
  }
}

// One of two tied weights is saved: the other stays the model's.
TEST_F(AdapterTest, ATiedWeightThatIsSavedGoesApart) {
  const std::string apart = Path("apart");
  ASSERT_TRUE(SaveModel(**BuildModel(Llama(false), {.seed = 4}), apart).ok());
  const std::string base = SaveBase(Llama(true));
  const std::vector<float> before = ValuesOf(*Load(base, {}), "lm_head.weight");
  const std::string head = "lm_head.weight", table = "model.embed_tokens.weight";
  for (const auto& [saved, kept] : {std::pair(head, table), {table, head}}) {
    const std::string module = saved.substr(0, saved.rfind('.'));
    const std::string folder = SaveRandomAdapter(apart, {{"modules_to_save", {module}}});
    const std::vector<float> own =
        EntriesOf(folder).at("base_model.model." + saved).ToVector<float>();
    for (const bool map : {false, true}) {
      const auto model = Load(base, {folder}, map);
      EXPECT_EQ(ValuesOf(*model, saved), own);
      EXPECT_EQ(ValuesOf(*model, kept), before);
    }
    const std::string merged = Path("merged_" + module);
    ASSERT_TRUE(ConvertModel(base, merged, {.adapter = folder}).ok());
    ExpectClose(LogitsOf(*Load(merged, {})), LogitsOf(*Load(base, {folder})), 1e-5, saved);
    // ensure_weight_tying: PEFT's file has both.
    json config = *ReadJsonFile(folder + "/adapter_config.json");
    config["ensure_weight_tying"] = true;
    ASSERT_TRUE(WriteFileAtomically(folder + "/adapter_config.json", config.dump()).ok());
    Tensors both = EntriesOf(folder);
    both["base_model.model." + kept] = both.at("base_model.model." + saved);
    WriteEntries(folder, both);
    const auto model = Load(base, {folder});
    EXPECT_EQ(ValuesOf(*model, saved), own);
    EXPECT_EQ(ValuesOf(*model, kept), own);
  }
}

// The stacks of a T5 look up modules of their own; `shared` is nobody's.
TEST_F(AdapterTest, T5sTablesAreThoseOfItsStacks) {
  const std::string base = SaveBase(T5());
  const std::string folder =
      SaveRandomAdapter(base, {{"target_modules", {"embed_tokens"}}, {"use_dora", true}});
  const Tensors tensors = EntriesOf(folder);
  EXPECT_EQ(tensors.size(), 2u * 3);
  for (const char* stack : {"encoder", "decoder"}) {
    EXPECT_EQ(tensors.count(Concat("base_model.model.", stack, ".embed_tokens.lora_embedding_A")),
              1u);
  }
  EXPECT_NE(Message(ConvertModel(base, Path("merged"), {.adapter = folder}))
                .find("which a t5 has one weight for with another module"),
            std::string::npos);
  EXPECT_NE(
      Message(AttachAdapter(*Load(base, {}), Config({{"target_modules", {"shared"}}})).status())
          .find("name no linear layer"),
      std::string::npos);
}

// What re.fullmatch of Python finds.
TEST_F(AdapterTest, PatternsOfModulesAreThoseOfPython) {
  const std::vector<std::string> modules = {"q_proj",
                                            "lm_head",
                                            "model.layers.0.self_attn.q_proj",
                                            "model.layers.1.self_attn.v_proj",
                                            "model.layers.13.mlp.down_proj",
                                            "model.layers.22.mlp.gate_proj",
                                            "layers.0.cross_proj",
                                            "a.b"};
  const std::vector<std::pair<std::string, std::vector<std::string>>> goldens = {
      {R"(.*\.(q|v)_proj$)",
       {"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.v_proj"}},
      {R"(^model\.layers\.\d+\.self_attn\.[qk]_proj$)", {"model.layers.0.self_attn.q_proj"}},
      {R"((?:.*\.)?layers\.(?:0|1)\..*)",
       {"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.v_proj",
        "layers.0.cross_proj"}},
      {R"([^.]*)", {"q_proj", "lm_head"}},
      {R"([^.]+\.[^.]+)", {"a.b"}},
      {R"((?i).*Q_PROJ)", {"q_proj", "model.layers.0.self_attn.q_proj"}},
      {R"((?P<a>q|v)_proj)", {"q_proj"}},
      {R"(.*(?P<p>l)a.*(?P=p).*)",
       {"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.v_proj",
        "model.layers.13.mlp.down_proj", "model.layers.22.mlp.gate_proj"}},
      {R"(.*layers\.1?[0-5]\..*)",
       {"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.v_proj",
        "model.layers.13.mlp.down_proj", "layers.0.cross_proj"}},
      {R"(lm_head\Z)", {"lm_head"}},
      {R"(.*(?<!cross)_proj)",
       {"q_proj", "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.v_proj",
        "model.layers.13.mlp.down_proj", "model.layers.22.mlp.gate_proj"}},
      {R"(.*\.\w+)",
       {"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.v_proj",
        "model.layers.13.mlp.down_proj", "model.layers.22.mlp.gate_proj", "layers.0.cross_proj",
        "a.b"}},
      {R"(q_proj|.*v_proj)", {"q_proj", "model.layers.1.self_attn.v_proj"}},
      {R"((?x) lm _ head)", {"lm_head"}},
      {R"(.*_(?=proj).{,4})",
       {"q_proj", "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.v_proj",
        "model.layers.13.mlp.down_proj", "model.layers.22.mlp.gate_proj", "layers.0.cross_proj"}},
      {R"(.*mlp\.((gate|up)_proj|down).*)",
       {"model.layers.13.mlp.down_proj", "model.layers.22.mlp.gate_proj"}},
  };
  for (const auto& [pattern, expected] : goldens) {
    const auto config =
        AdapterConfig::FromJson(AdapterJson({{"target_modules", pattern}}), "a.json");
    ASSERT_TRUE(config.ok()) << config.status();
    std::vector<std::string> matched;
    std::copy_if(modules.begin(), modules.end(), std::back_inserter(matched),
                 [&](const std::string& module) { return config->target_modules.Match(module); });
    EXPECT_EQ(matched, expected) << pattern;
  }
}

}  // namespace
}  // namespace tessera::models
