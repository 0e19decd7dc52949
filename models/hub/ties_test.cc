// SPDX-License-Identifier: Apache-2.0
// Folders whose tied weights differ, and what is written for other programs to read them alike.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json_text.h"
#include "models/family.h"
#include "models/hub/load_model.h"
#include "models/hub/save_model.h"
#include "models/hub/weight_files.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json Gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 30}, {"n_positions", 8},
          {"n_embd", 6},          {"n_layer", 2},     {"n_head", 2}};
}

json Bert(const char* model_type, const char* architecture) {
  return {{"model_type", model_type}, {"architectures", {architecture}}, {"vocab_size", 30},
          {"hidden_size", 6},         {"num_hidden_layers", 1},          {"num_attention_heads", 2},
          {"intermediate_size", 8},   {"max_position_embeddings", 8}};
}

json ModernBert() {
  return {{"model_type", "modernbert"}, {"vocab_size", 30},         {"hidden_size", 8},
          {"num_hidden_layers", 1},     {"num_attention_heads", 2}, {"intermediate_size", 5},
          {"pad_token_id", 0}};
}

json T5(const char* model_type) {
  return {{"model_type", model_type}, {"vocab_size", 30}, {"d_model", 6}, {"d_kv", 3}, {"d_ff", 8},
          {"num_layers", 1},          {"num_heads", 2}};
}

json Glm() {
  return {{"model_type", "glm"}, {"vocab_size", 30},         {"hidden_size", 8},
          {"num_layers", 1},     {"num_attention_heads", 2}, {"max_sequence_length", 8}};
}

class TiesTest : public testing::Test {
 protected:
  TiesTest()
      : folder_(testing::TempDir() + "/ties_" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(folder_);
  }

  std::string weights_path() const { return folder_ + "/model.safetensors"; }
  void Save(const json& config) const {
    const auto model = BuildModel(config, {.seed = 3});
    ASSERT_TRUE(model.ok()) << Message(model.status());
    ASSERT_TRUE(SaveModel(**model, folder_).ok());
  }
  // The tensor `of` under `name` too, all elements `plus` greater.
  void AddCopy(const std::string& name, const std::string& of, float plus) const {
    const auto file = SafetensorsFile::Open(weights_path());
    std::vector<NamedTensorView> tensors;
    for (const auto& entry : file->entries()) {
      if (entry.name != name) tensors.push_back({entry.name, *file->Get(entry.name)});
    }
    TensorView view = *file->Get(of);
    std::vector<float> values(static_cast<size_t>(view.nbytes / 4));
    std::memcpy(values.data(), view.data, static_cast<size_t>(view.nbytes));
    for (float& v : values) v += plus;
    view.data = reinterpret_cast<const std::byte*>(values.data());
    tensors.push_back({name, view});
    ASSERT_TRUE(WriteSafetensors(weights_path(), tensors).ok());
  }
  std::unique_ptr<Model> Load(const LoadOptions& options = {}) const {
    auto model = LoadModel(folder_, options);
    EXPECT_TRUE(model.ok()) << Message(model.status());
    return model.ok() ? *std::move(model) : nullptr;
  }
  std::string Failure() const { return Message(LoadModel(folder_).status()); }
  json SavedConfig() const { return *ReadJsonFile(folder_ + "/config.json"); }
  bool Holds(const std::string& name) const {
    return SafetensorsFile::Open(weights_path())->Find(name) != nullptr;
  }

  const std::string folder_;
};

std::vector<float> ValuesOf(Model& model, const std::string& name) {
  return model.FindParameter(name)->tensor.ToVector<float>();
}

struct TiedFamily {
  const char* label;
  json config;
  std::string embedding;
  std::string head;
};

class UntyingTest : public TiesTest, public testing::WithParamInterface<TiedFamily> {};

TEST_P(UntyingTest, TensorsThatDifferAreNotTied) {
  const auto& [label, config, embedding, head] = GetParam();
  Save(config);
  AddCopy(head, embedding, 0);
  EXPECT_NE(Load()->FindParameter(head)->tied_to, nullptr);
  Save(config);
  AddCopy(head, embedding, 1);
  const auto model = Load();
  EXPECT_EQ(model->FindParameter(head)->tied_to, nullptr);
  const std::vector<float> expected = ValuesOf(*model, embedding);
  std::vector<float> own = ValuesOf(*model, head);
  for (size_t i = 0; i < own.size(); ++i) EXPECT_EQ(own[i], expected[i] + 1);
  // It stays so.
  ASSERT_TRUE(SaveModel(*model, folder_).ok());
  EXPECT_TRUE(Holds(head));
  EXPECT_EQ(SavedConfig()["tie_word_embeddings"], false);
  const auto again = Load();
  EXPECT_EQ(again->FindParameter(head)->tied_to, nullptr);
  EXPECT_EQ(ValuesOf(*again, head), own);
  EXPECT_EQ((*ReadModelConfig(folder_))["tie_word_embeddings"], false);
}

TEST_P(UntyingTest, StagesAgreeOnIt) {
  const auto& [label, config, embedding, head] = GetParam();
  Save(config);
  AddCopy(head, embedding, 1);
  EXPECT_EQ((*ReadModelConfig(folder_))["tie_word_embeddings"], false);
  const int blocks = Load()->num_blocks();
  const auto first = Load({.build = {.first_block = 0, .end_block = 1}});
  const auto last = Load({.build = {.first_block = blocks - 1, .end_block = blocks}});
  EXPECT_EQ(first->config()["tie_word_embeddings"], false);
  EXPECT_EQ(last->config()["tie_word_embeddings"], false);
  EXPECT_EQ(last->FindParameter(embedding), nullptr);
}

INSTANTIATE_TEST_SUITE_P(
    Families, UntyingTest,
    testing::Values(TiedFamily{"gpt2", Gpt2(), "transformer.wte.weight", "lm_head.weight"},
                    TiedFamily{"bert", Bert("bert", "BertForMaskedLM"),
                               "bert.embeddings.word_embeddings.weight",
                               "cls.predictions.decoder.weight"},
                    TiedFamily{"roberta", Bert("roberta", "RobertaForMaskedLM"),
                               "roberta.embeddings.word_embeddings.weight",
                               "lm_head.decoder.weight"},
                    TiedFamily{"modernbert", ModernBert(), "model.embeddings.tok_embeddings.weight",
                               "decoder.weight"},
                    TiedFamily{"t5", T5("t5"), "shared.weight", "lm_head.weight"},
                    TiedFamily{"mt5", T5("mt5"), "shared.weight", "lm_head.weight"}),
    [](const auto& info) { return std::string(info.param.label); });

TEST_F(TiesTest, WhatHasOneParameterForBothIsRefused) {
  Save(Glm());
  AddCopy("lm_head.weight", "word_embeddings.weight", 0);
  EXPECT_NE(Load(), nullptr);
  Save(Glm());
  AddCopy("lm_head.weight", "word_embeddings.weight", 1);
  const std::string end = "differ, and the model has one parameter for both";
  EXPECT_EQ(Failure(),
            weights_path() + ": tensors 'word_embeddings.weight' and 'lm_head.weight' " + end);
  Save(T5("t5"));
  AddCopy("encoder.embed_tokens.weight", "shared.weight", 1);
  EXPECT_EQ(Failure(),
            weights_path() + ": tensors 'shared.weight' and 'encoder.embed_tokens.weight' " + end);
  Save(Gpt2());
  AddCopy("wte.weight", "transformer.wte.weight", 1);
  EXPECT_EQ(Failure(),
            weights_path() + ": tensors 'transformer.wte.weight' and 'wte.weight' " + end);
  // A model that is built already keeps its ties.
  Save(Gpt2());
  AddCopy("lm_head.weight", "transformer.wte.weight", 1);
  const auto tied = BuildModel(Gpt2(), {});
  EXPECT_EQ(Message(LoadWeights(**tied, folder_)),
            weights_path() + ": tensors 'transformer.wte.weight' and 'lm_head.weight' " + end);
}

TEST_F(TiesTest, WhatIsAskedForIsNotChanged) {
  Save(Gpt2());
  AddCopy("lm_head.weight", "transformer.wte.weight", 1);
  EXPECT_NE(
      Message(LoadModel(folder_, {.config_changes = {{"tie_word_embeddings", true}}}).status())
          .find("'transformer.wte.weight' and 'lm_head.weight' differ"),
      std::string::npos);
  Save(T5("t5"));
  AddCopy("lm_head.weight", "shared.weight", 0);
  EXPECT_NE(Load()->FindParameter("lm_head.weight")->tied_to, nullptr);
  const auto untied = Load({.config_changes = {{"tie_word_embeddings", false}}});
  EXPECT_EQ(untied->FindParameter("lm_head.weight")->tied_to, nullptr);
}

TEST_F(TiesTest, ScaleOfT5sDecoder) {
  const auto config_of = [](const json& more, const char* model_type = "t5") {
    json config = T5(model_type);
    config.update(more);
    return config;
  };
  // Untied by its files: the scale is what it was.
  for (const bool scale : {false, true}) {
    Save(config_of({{"scale_decoder_outputs", scale}, {"tie_word_embeddings", true}}));
    if (scale) AddCopy("lm_head.weight", "shared.weight", 1);
    const auto model = Load();
    ASSERT_TRUE(SaveModel(*model, folder_).ok());
    EXPECT_EQ(SavedConfig()["scale_decoder_outputs"], scale);
    EXPECT_EQ(SavedConfig()["tie_word_embeddings"], false);
    EXPECT_TRUE(Holds("lm_head.weight"));
    EXPECT_EQ(Load()->FindParameter("lm_head.weight")->tied_to == nullptr, scale);
  }
  Save(config_of({{"tie_word_embeddings", true}}));
  EXPECT_FALSE(Holds("lm_head.weight"));
  EXPECT_EQ(
      Message(
          BuildModel(
              config_of({{"tie_word_embeddings", true}, {"transformers_version", "4.57.6"}}, "mt5"),
              {})
              .status()),
      "config of mt5: 'tie_word_embeddings': true scales the decoder's output in "
      "transformers 4 and not in 5; 'scale_decoder_outputs' must say which is meant");
}

TEST_F(TiesTest, TheDecodersBiasCounts) {
  for (const bool roberta : {false, true}) {
    json config = roberta ? Bert("roberta", "RobertaForMaskedLM") : Bert("bert", "BertForMaskedLM");
    const std::string bias = roberta ? "lm_head.bias" : "cls.predictions.bias";
    const std::string copy = roberta ? "lm_head.decoder.bias" : "cls.predictions.decoder.bias";
    Save(config);
    EXPECT_FALSE(Holds(copy));
    AddCopy(copy, bias, 2);
    EXPECT_EQ(ValuesOf(*Load(), bias), std::vector<float>(30, 2));
    config["tie_word_embeddings"] = false;
    Save(config);
    EXPECT_TRUE(Holds(copy));
    EXPECT_TRUE(Holds(bias));
    EXPECT_EQ(ValuesOf(*Load(), bias), std::vector<float>(30, 0));
  }
}

TEST_F(TiesTest, FloatsAreWrittenAsFloats) {
  json config = Bert("bert", "BertForMaskedLM");
  config["initializer_range"] = 1;
  config["hidden_dropout_prob"] = 0;
  config["torch_dtype"] = "bfloat16";
  Save(config);
  EXPECT_TRUE(SavedConfig()["initializer_range"].is_number_float());
  EXPECT_TRUE(SavedConfig()["hidden_dropout_prob"].is_number_float());
  EXPECT_TRUE(SavedConfig()["hidden_size"].is_number_integer());
  EXPECT_EQ(SavedConfig()["dtype"], "float32");
  EXPECT_FALSE(SavedConfig().contains("torch_dtype"));
}

}  // namespace
}  // namespace tessera::models
