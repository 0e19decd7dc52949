// SPDX-License-Identifier: Apache-2.0
#include "models/open/text_encoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "base/file.h"
#include "core/safetensors.h"
#include "models/family.h"
#include "models/hub/save_model.h"
#include "models/model_keys.h"
#include "models/open/open_model.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Vectors = std::vector<std::vector<float>>;

constexpr int64_t kWidth = 6;

json Bert(const std::string& architecture) {
  return {{"model_type", "bert"},    {"architectures", {architecture}}, {"vocab_size", 12},
          {"hidden_size", kWidth},   {"num_hidden_layers", 2},          {"num_attention_heads", 2},
          {"intermediate_size", 10}, {"max_position_embeddings", 16},   {"initializer_range", 0.5},
          {"num_labels", 1}};
}

class TextEncoderTest : public testing::Test {
 protected:
  TextEncoderTest()
      : root_(testing::TempDir() + "/text_encoder_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    Save("BertModel");
  }
  ~TextEncoderTest() override { fs::remove_all(root_); }

  void Save(const std::string& architecture) {
    const auto model = BuildModel(Bert(architecture), {.seed = 7});
    ASSERT_TRUE(model.ok()) << model.status();
    fs::remove_all(root_);
    ASSERT_TRUE(SaveModel(**model, root_, nullptr).ok());
    WriteText("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd\nQ\n:\n[MASK]\nq\n");
    Write("tokenizer_config.json",
          {{"tokenizer_class", "BertTokenizer"}, {"do_lower_case", false}});
  }
  void WriteText(const std::string& name, const std::string& text) {
    const std::string path = root_ + "/" + name;
    ASSERT_TRUE(MakeDirectories(path.substr(0, path.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomically(path, text).ok());
  }
  void Write(const std::string& name, const json& value) { WriteText(name, value.dump()); }
  // modules.json of modules behind the Transformer: {type, path}.
  void List(const std::vector<std::pair<std::string, std::string>>& modules,
            const std::string& transformer = "") {
    json list = {{{"idx", 0},
                  {"name", "0"},
                  {"path", transformer},
                  {"type", "sentence_transformers.models.Transformer"}}};
    for (const auto& [type, path] : modules) {
      list.push_back({{"idx", list.size()},
                      {"name", std::to_string(list.size())},
                      {"path", path},
                      {"type", "sentence_transformers.models." + type}});
    }
    Write("modules.json", list);
  }
  void WriteDense(const std::string& path, json config, const Tensor& weight, const Tensor& bias) {
    config.update({{"in_features", weight.size(1)}, {"out_features", weight.size(0)}});
    Write(path + "/config.json", config);
    std::vector<SafetensorsEntry> entries = {
        {"linear.weight", DType::kFloat32, {weight.size(0), weight.size(1)}}};
    if (bias.defined()) entries.push_back({"linear.bias", DType::kFloat32, {bias.size(0)}});
    auto writer = SafetensorsWriter::Create(root_ + "/" + path + "/model.safetensors", entries);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->Append(weight.raw_data(), weight.nbytes()).ok());
    if (bias.defined()) {
      ASSERT_TRUE(writer->Append(bias.raw_data(), bias.nbytes()).ok());
    }
    ASSERT_TRUE(writer->Commit().ok());
  }

  OpenedModel Open() {
    auto opened = OpenModel(root_, {});
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  // Why texts are refused by what lies in the folder.
  std::string Refusal() {
    auto opened = OpenModel(root_, {.hides_paths = true});
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (!opened->encoder.ok()) return Message(opened->encoder.status());
    return Message(opened->encoder->CheckEmbeds(*opened->model));
  }
  Vectors Embed(const OpenedModel& opened, const std::vector<std::string>& texts,
                const TextOptions& reading = {}, const EmbedOptions& making = {}) {
    EXPECT_TRUE(opened.encoder.ok()) << opened.encoder.status();
    std::vector<EncodedText> rows;
    for (const std::string& text : texts) {
      auto row = opened.encoder->TextOf(*opened.model, *opened.tokenizer, text, reading);
      EXPECT_TRUE(row.ok()) << row.status();
      rows.push_back(*std::move(row));
    }
    auto vectors = opened.encoder->Embed(*opened.model, rows, making);
    EXPECT_TRUE(vectors.ok()) << vectors.status();
    return *std::move(vectors);
  }
  // What the model gives for [CLS] ids [SEP]: rows of kWidth numbers.
  static std::vector<std::vector<double>> HiddenOf(const Model& model, std::vector<int64_t> ids) {
    const NoGrad no_grad;
    const Tensor hidden =
        model.Run({{keys::kInputIds, Tensor::FromVector(ids, {1, std::ssize(ids)})}}, {})
            .at(keys::kLastHiddenState);
    const std::vector<float> flat = hidden.ToVector<float>();
    std::vector<std::vector<double>> rows(ids.size());
    for (size_t t = 0; t < ids.size(); ++t) {
      rows[t].assign(flat.begin() + static_cast<long>(t) * kWidth,
                     flat.begin() + static_cast<long>(t + 1) * kWidth);
    }
    return rows;
  }

  const std::string root_;
};

void ExpectNear(const std::vector<float>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-6) << i;
}

// A pooling's formula, from the first row that counts on.
std::vector<double> PooledBy(const std::string& mode, const std::vector<std::vector<double>>& rows,
                             size_t first = 0) {
  std::vector<double> pooled(kWidth);
  const auto tokens = static_cast<double>(rows.size() - first);
  for (size_t c = 0; c < kWidth; ++c) {
    double sum = 0, weighted = 0, weights = 0, most = rows[first][c];
    for (size_t t = first; t < rows.size(); ++t) {
      sum += rows[t][c];
      weighted += static_cast<double>(t + 1) * rows[t][c];
      weights += static_cast<double>(t + 1);
      most = std::max(most, rows[t][c]);
    }
    if (mode == "cls") pooled[c] = rows[first][c];
    if (mode == "max") pooled[c] = most;
    if (mode == "mean") pooled[c] = sum / tokens;
    if (mode == "mean_sqrt_len_tokens") pooled[c] = sum / std::sqrt(tokens);
    if (mode == "weightedmean") pooled[c] = weighted / weights;
    if (mode == "lasttoken") pooled[c] = rows.back()[c];
  }
  return pooled;
}

std::vector<double> UnitOf(std::vector<double> x) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  for (double& v : x) v /= std::sqrt(squares);
  return x;
}

const std::vector<int64_t> kAbc = {2, 4, 5, 6, 3};  // [CLS] a b c [SEP]

TEST_F(TextEncoderTest, EveryPoolingInTheWordsOfEachVersion) {
  const std::pair<std::string, std::string> modes[] = {
      {"cls", "cls_token"},
      {"max", "max_tokens"},
      {"mean", "mean_tokens"},
      {"mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
      {"weightedmean", "weightedmean_tokens"},
      {"lasttoken", "lasttoken"}};
  List({{"Pooling", "1_Pooling"}});
  for (const auto& [name, legacy] : modes) {
    SCOPED_TRACE(name);
    Write("1_Pooling/config.json", {{"embedding_dimension", kWidth}, {"pooling_mode", name}});
    const OpenedModel opened = Open();
    const std::vector<double> want = PooledBy(name, HiddenOf(*opened.model, kAbc));
    const Vectors got = Embed(opened, {"a b c"});
    ExpectNear(got[0], want);
    Write("1_Pooling/config.json", {{"word_embedding_dimension", kWidth},
                                    {"pooling_mode_mean_tokens", name == "mean"},
                                    {"pooling_mode_" + legacy, true}});
    EXPECT_EQ(Embed(Open(), {"a b c"}), got);
  }
  Write("1_Pooling/config.json", {{"pooling_mode", {"max", "cls"}}});
  const OpenedModel opened = Open();
  EXPECT_EQ(opened.encoder->size(*opened.model), 2 * kWidth);
  const auto hidden = HiddenOf(*opened.model, kAbc);
  std::vector<double> both = PooledBy("max", hidden);
  for (const double v : PooledBy("cls", hidden)) both.push_back(v);
  ExpectNear(Embed(opened, {"a b c"})[0], both);
  // Switches say what there is, not in which order.
  Write("1_Pooling/config.json",
        {{"pooling_mode_max_tokens", true}, {"pooling_mode_cls_token", true}});
  both = PooledBy("cls", hidden);
  for (const double v : PooledBy("max", hidden)) both.push_back(v);
  ExpectNear(Embed(Open(), {"a b c"})[0], both);
}

TEST_F(TextEncoderTest, DenseAndNormalizeAtTheirPaths) {
  const Tensor weight =
      Tensor::FromVector(std::vector<float>{1, 0, -1, 2, 0, .5f, 0, 1, 1, -.5f, 2, 0}, {2, kWidth});
  const Tensor bias = Tensor::FromVector(std::vector<float>{.25f, -.5f}, {2});
  List({{"Pooling", "pool"}, {"Dense", "head"}, {"Normalize", "unit"}});
  WriteDense("head", {{"activation_function", "torch.nn.modules.activation.Tanh"}}, weight, bias);
  const OpenedModel opened = Open();
  const std::vector<double> mean = PooledBy("mean", HiddenOf(*opened.model, kAbc));
  std::vector<double> want(2);
  for (size_t o = 0; o < 2; ++o) {
    double sum = bias.ToVector<float>()[o];
    for (size_t i = 0; i < kWidth; ++i) sum += weight.ToVector<float>()[o * kWidth + i] * mean[i];
    want[o] = std::tanh(sum);
  }
  ExpectNear(Embed(opened, {"a b c"})[0], UnitOf(want));
  ExpectNear(Embed(opened, {"a b c"}, {}, {.normalise = false})[0], want);
  EXPECT_EQ(opened.encoder->size(*opened.model), 2);
  // The first number alone, of length 1 again.
  const Vectors first = Embed(opened, {"a b c"}, {}, {.dimensions = 1});
  ASSERT_EQ(first[0].size(), 1u);
  EXPECT_FLOAT_EQ(std::abs(first[0][0]), 1);
  // What the folder keeps is as it is in the whole vector, unless length 1 is asked for.
  Write("config_sentence_transformers.json", {{"truncate_dim", 1}});
  const OpenedModel shortened = Open();
  EXPECT_EQ(shortened.encoder->size(*shortened.model), 1);
  ExpectNear(Embed(shortened, {"a b c"})[0], {UnitOf(want)[0]});
  EXPECT_FLOAT_EQ(std::abs(Embed(shortened, {"a b c"}, {}, {.normalise = true})[0][0]), 1);
  ExpectNear(Embed(shortened, {"a b c"}, {}, {.dimensions = 2})[0], UnitOf(want));
  Write("config_sentence_transformers.json", json::object());
  // Without a bias, another activation, and what went in besides.
  const Tensor square = Full({kWidth, kWidth}, 0.5);
  WriteDense("head",
             {{"bias", false},
              {"use_residual", true},
              {"activation_function", "torch.nn.modules.linear.Identity"}},
             square, Tensor());
  List({{"Pooling", "pool"}, {"Dense", "head"}});
  double sum = 0;
  for (const double v : mean) sum += v / 2;
  std::vector<double> moved = mean;
  for (double& v : moved) v += sum;
  ExpectNear(Embed(Open(), {"a b c"})[0], moved);
}

TEST_F(TextEncoderTest, TextsAreCutPromptedAndInLowerCaseAsFilesSay) {
  List({{"Pooling", "1_Pooling"}});
  Write("sentence_bert_config.json", {{"max_seq_length", 5}, {"do_lower_case", true}});
  Write("config_sentence_transformers.json",
        {{"prompts", {{"query", "Q: "}, {"document", nullptr}}}, {"default_prompt_name", "query"}});
  OpenedModel opened = Open();
  const auto ids = [&](const std::string& text, const TextOptions& reading = {}) {
    auto row = opened.encoder->TextOf(*opened.model, *opened.tokenizer, text, reading);
    EXPECT_TRUE(row.ok()) << row.status();
    return row->ids;
  };
  using Ids = std::vector<int64_t>;
  EXPECT_EQ(ids("a b c d"), (Ids{2, 11, 9, 4, 3}));  // the prompt is in lower case, too
  EXPECT_EQ(ids("A b c d", {.prompt = ""}), (Ids{2, 4, 5, 6, 3}));
  EXPECT_EQ(ids("a b c d", {.prompt = "", .max_tokens = 4}), (Ids{2, 4, 5, 3}));
  EXPECT_EQ(ids("A [SEP] b", {.prompt = ""}), (Ids{2, 4, 3, 5, 3}));
  EXPECT_EQ(*opened.encoder->PromptOf("document"), "");
  EXPECT_EQ(Message(opened.encoder->PromptOf("other").status()),
            "the model has no prompt 'other'; it has document, query");
  Write("tokenizer_config.json", {{"tokenizer_class", "BertTokenizer"},
                                  {"do_lower_case", false},
                                  {"truncation_side", "left"}});
  opened = Open();
  EXPECT_EQ(ids("a b c d", {.prompt = ""}), (Ids{2, 5, 6, 7, 3}));
  // Without a length there, the tokenizer's.
  fs::remove(root_ + "/sentence_bert_config.json");
  Write("tokenizer_config.json",
        {{"tokenizer_class", "BertTokenizer"}, {"do_lower_case", false}, {"model_max_length", 4}});
  opened = Open();
  EXPECT_EQ(ids("Q b c d", {.prompt = ""}), (Ids{2, 8, 5, 3}));
  // Where nothing is listed, what is too long is refused.
  fs::remove(root_ + "/modules.json");
  opened = Open();
  std::string words;
  for (int i = 0; i < 15; ++i) words += "a ";
  EXPECT_EQ(Message(opened.encoder->TextOf(*opened.model, *opened.tokenizer, words).status()),
            "has 17 tokens; the model has 16 positions");
}

TEST_F(TextEncoderTest, TokensOfThePromptMayNotCount) {
  List({{"Pooling", "1_Pooling"}});
  Write("config_sentence_transformers.json",
        {{"prompts", {{"query", "a b "}}}, {"default_prompt_name", "query"}});
  for (const std::string mode : {"cls", "max", "mean", "weightedmean", "lasttoken"}) {
    SCOPED_TRACE(mode);
    Write("1_Pooling/config.json", {{"pooling_mode", mode}, {"include_prompt", false}});
    const OpenedModel opened = Open();
    const auto hidden = HiddenOf(*opened.model, {2, 4, 5, 6, 7, 3});
    ExpectNear(Embed(opened, {"c d"})[0], PooledBy(mode, hidden, 3));
  }
}

TEST_F(TextEncoderTest, ARowHasTheBitsThatItHasAlone) {
  List({{"Pooling", "1_Pooling"}});
  Write("1_Pooling/config.json", {{"pooling_mode", {"mean", "max", "lasttoken"}}});
  const OpenedModel opened = Open();
  const std::vector<std::string> texts = {"a", "a b c d a b c", "", "d c", "b b b b", "c d"};
  const Vectors together = Embed(opened, texts);
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(Embed(opened, {texts[i]})[0], together[i]);
}

TEST_F(TextEncoderTest, WithoutModulesTheMeanOfLengthOne) {
  const OpenedModel opened = Open();
  EXPECT_FALSE(opened.encoder->listed());
  const std::vector<double> mean = PooledBy("mean", HiddenOf(*opened.model, kAbc));
  ExpectNear(Embed(opened, {"a b c"})[0], UnitOf(mean));
  ExpectNear(Embed(opened, {"a b c"}, {}, {.normalise = false})[0], mean);
}

TEST_F(TextEncoderTest, TheModelMayLieInAFolderOfItsOwn) {
  List({{"Pooling", "1_Pooling"}}, "0_Transformer");
  const Vectors want = [&] {
    List({{"Pooling", "1_Pooling"}});
    return Embed(Open(), {"a b c"});
  }();
  List({{"Pooling", "1_Pooling"}}, "0_Transformer");
  fs::create_directory(root_ + "/0_Transformer");
  for (const char* name :
       {"config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"}) {
    fs::rename(root_ + "/" + name, root_ + "/0_Transformer/" + name);
  }
  const OpenedModel opened = Open();
  EXPECT_EQ(opened.folder, root_ + "/0_Transformer");
  EXPECT_EQ(Embed(opened, {"a b c"}), want);
}

TEST_F(TextEncoderTest, PairsAreScored) {
  EXPECT_EQ(Message(Open().encoder->CheckScores(*Open().model)),
            "the model is no reranker: that is a classifier of sequences with one label");
  Save("BertForSequenceClassification");
  const auto score = [&] {
    const OpenedModel opened = Open();
    const auto pair = opened.encoder->PairOf(*opened.model, *opened.tokenizer, "a b", "c");
    EXPECT_TRUE(pair.ok()) << pair.status();
    EXPECT_EQ(pair->ids, (std::vector<int64_t>{2, 4, 5, 3, 6, 3}));
    EXPECT_EQ(pair->types, (std::vector<int64_t>{0, 0, 0, 0, 1, 1}));
    const auto other = opened.encoder->PairOf(*opened.model, *opened.tokenizer, "a", "b c d");
    const auto scores = opened.encoder->Score(*opened.model, std::vector{*pair, *other});
    EXPECT_TRUE(scores.ok()) << scores.status();
    EXPECT_EQ((*opened.encoder->Score(*opened.model, {&*pair, 1}))[0], (*scores)[0]);
    return *scores;
  };
  const std::vector<double> sigmoid = score();
  json config = Bert("BertForSequenceClassification");
  config["sentence_transformers"] = {{"activation_fn", "torch.nn.modules.linear.Identity"}};
  Write("config.json", config);
  const std::vector<double> logits = score();
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(sigmoid[i], 1 / (1 + std::exp(-logits[i])), 1e-9);
  EXPECT_NE(logits[0], logits[1]);
}

TEST_F(TextEncoderTest, WhatIsNotSupportedIsNamed) {
  const auto with = [&](const std::string& file, const json& content) {
    fs::remove_all(root_ + "/1_Pooling");
    fs::remove_all(root_ + "/2_Dense");
    fs::remove(root_ + "/sentence_bert_config.json");
    fs::remove(root_ + "/config_sentence_transformers.json");
    Write(file, content);
    return Refusal();
  };
  List({{"Pooling", "1_Pooling"}});
  EXPECT_EQ(with("1_Pooling/config.json", {{"pooling_mode", "median"}}),
            "1_Pooling/config.json: 'pooling_mode' 'median' is not supported");
  EXPECT_EQ(with("1_Pooling/config.json", {{"layers", 3}}),
            "1_Pooling/config.json: 'layers' is not supported");
  EXPECT_EQ(with("sentence_bert_config.json", {{"transformer_task", "fill-mask"}}),
            "sentence_bert_config.json: 'transformer_task' 'fill-mask' is not supported");
  EXPECT_EQ(with("sentence_bert_config.json", {{"config_args", {{"num_hidden_layers", 1}}}}),
            "sentence_bert_config.json: 'config_args': 'num_hidden_layers' is not supported");
  EXPECT_EQ(with("sentence_bert_config.json", {{"query_length", 3}}),
            "sentence_bert_config.json: 'query_length' is not supported");
  EXPECT_EQ(with("config_sentence_transformers.json", {{"model_type", "SparseEncoder"}}),
            "config_sentence_transformers.json: 'model_type' 'SparseEncoder' is not supported");
  EXPECT_EQ(with("config_sentence_transformers.json", {{"default_prompt_name", "x"}}),
            "config_sentence_transformers.json: 'default_prompt_name' 'x' is none of 'prompts'");
  List({{"Pooling", "1_Pooling"}, {"Dense", "2_Dense"}});
  EXPECT_EQ(with("2_Dense/config.json", {{"activation_function", "mine.Act"}}),
            "2_Dense/config.json: 'activation_function' 'mine.Act' is not supported");
  WriteDense("2_Dense", {}, Zeros({2, kWidth + 1}, DType::kFloat32), Zeros({2}, DType::kFloat32));
  EXPECT_EQ(Refusal(), "Dense takes vectors of 7 numbers; the model's have 6");
  List({{"LSTM", "1_LSTM"}});
  EXPECT_EQ(Refusal(),
            "modules.json: module 'LSTM' is not supported; Transformer, Pooling, Dense and "
            "Normalize are");
  List({{"Normalize", "1_Normalize"}});
  EXPECT_EQ(Refusal(),
            "modules.json: module '1_Normalize' needs the vector of a text, which no Pooling "
            "before it makes");
  List({{"Pooling", "../1_Pooling"}});
  EXPECT_EQ(Refusal(), "modules.json: 'path' '../1_Pooling' leaves the folder");
  List({});
  EXPECT_EQ(Refusal(), "modules.json lists no Pooling");
  Write("modules.json", json({{{"type", "custom.Thing"}, {"path", ""}}}));
  EXPECT_EQ(Refusal(), "modules.json: module 'custom.Thing' is not supported");
}

}  // namespace
}  // namespace tessera::models
