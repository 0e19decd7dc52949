// SPDX-License-Identifier: Apache-2.0
#include "models/bert/bert.h"

#include <gtest/gtest.h>

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

json SmallConfig(const char* type, const char* architecture) {
  return {{"model_type", type},      {"architectures", {architecture}},
          {"vocab_size", 23},        {"hidden_size", 10},
          {"num_hidden_layers", 2},  {"num_attention_heads", 2},
          {"intermediate_size", 14}, {"max_position_embeddings", 12},
          {"type_vocab_size", 2},    {"initializer_range", 0.3},
          {"num_labels", 3}};
}

std::unique_ptr<Model> Build(const json& config, nn::BuildContext build = {}) {
  auto model = BuildModel(config, build);
  EXPECT_TRUE(model.ok()) << Message(model.status());
  return *std::move(model);
}

Tensor Ids(const std::vector<int64_t>& values) {
  return Tensor::FromVector(values, {1, static_cast<int64_t>(values.size())});
}

TEST(BertTest, CountsOfTheHeads) {
  // transformers' counts of bert-base-uncased with each head.
  const std::pair<const char*, int64_t> counts[] = {{"BertModel", 109482240},
                                                    {"BertForMaskedLM", 109514298},
                                                    {"BertForPreTraining", 110106428},
                                                    {"BertForSequenceClassification", 109483778}};
  json config = FindPreset("bert-base-uncased")->config;
  for (const auto& [architecture, count] : counts) {
    config["architectures"] = {architecture};
    EXPECT_EQ(Build(config, {.device = Device::Meta()})->ParameterCount(), count) << architecture;
  }
}

TEST(BertTest, ParameterNamesAreHuggingFaces) {
  const auto has = [](Model& model, const char* name) {
    return model.FindParameter(name) != nullptr;
  };
  const auto bert = Build(SmallConfig("bert", "BertForPreTraining"));
  for (const char* name :
       {"bert.embeddings.word_embeddings.weight", "bert.embeddings.LayerNorm.bias",
        "bert.encoder.layer.1.attention.self.query.weight",
        "bert.encoder.layer.0.attention.output.LayerNorm.weight",
        "bert.encoder.layer.0.intermediate.dense.bias", "bert.encoder.layer.0.output.dense.weight",
        "bert.pooler.dense.weight", "cls.predictions.transform.dense.weight",
        "cls.predictions.bias", "cls.seq_relationship.weight"}) {
    EXPECT_TRUE(has(*bert, name)) << name;
  }
  EXPECT_EQ(bert->FindParameter("cls.predictions.decoder.weight")->tied_to,
            bert->FindParameter("bert.embeddings.word_embeddings.weight"));
  const auto bare = Build(SmallConfig("bert", "BertModel"));
  EXPECT_TRUE(has(*bare, "encoder.layer.0.output.LayerNorm.bias"));
  EXPECT_TRUE(has(*bare, "pooler.dense.bias"));
  const auto roberta = Build(SmallConfig("roberta", "RobertaForSequenceClassification"));
  EXPECT_TRUE(has(*roberta, "classifier.out_proj.weight"));
  EXPECT_FALSE(has(*roberta, "roberta.pooler.dense.weight"));
}

TEST(BertTest, PaddingRowsBeginAtZero) {
  const auto row_norm = [](Model& model, const char* name, int64_t row) {
    double sum = 0;
    const Tensor values = Select(model.FindParameter(name)->tensor.Detach(), 0, row);
    for (const float v : values.ToVector<float>()) sum += v * v;
    return sum;
  };
  const auto roberta = Build(SmallConfig("roberta", "RobertaForMaskedLM"));
  for (const char* table : {"roberta.embeddings.word_embeddings.weight",
                            "roberta.embeddings.position_embeddings.weight"}) {
    EXPECT_EQ(row_norm(*roberta, table, 1), 0) << table;
    EXPECT_GT(row_norm(*roberta, table, 2), 0) << table;
  }
}

TEST(BertTest, RobertaCountsPositionsFromPadding) {
  const auto model = Build(SmallConfig("roberta", "RobertaModel"));
  EXPECT_EQ(model->max_positions(), 10);
  const Tensor ids = Ids({5, 1, 7, 8, 1});
  const auto hidden = [&](const Bundle& in) {
    return model->Run(in, {}).at(keys::kLastHiddenState).ToVector<float>();
  };
  EXPECT_EQ(hidden({{keys::kInputIds, ids}}),
            hidden({{keys::kInputIds, ids}, {keys::kPositionIds, Ids({2, 1, 3, 4, 1})}}));
}

// The head over the tokens to be guessed alone gives the loss and the gradients of the whole one.
TEST(BertTest, TargetsAloneGiveTheLossOfAllTokens) {
  for (const std::vector<int64_t>& labels :
       {std::vector<int64_t>{-100, 4, -100, 9, -100, -100, -100, 22, -100, 0},
        std::vector<int64_t>(10, -100)}) {
    const auto run = [&](bool keep_logits) {
      const auto model = Build(SmallConfig("bert", "BertForMaskedLM"));
      RunOptions options;
      options.loss_reduction = LossReduction::kSum;
      options.keep_logits = keep_logits;
      const Tensor loss = model
                              ->Run({{keys::kInputIds, RandomIndices({2, 5}, 23, 1)},
                                     {keys::kLabels, Tensor::FromVector(labels, {2, 5})}},
                                    options)
                              .at(keys::kLoss);
      Backward(loss);
      std::vector<double> values = {loss.Item()};
      for (const nn::Parameter* p : model->Parameters()) {
        if (!Grad(p->tensor).defined()) continue;
        for (const float g : Grad(p->tensor).ToVector<float>()) values.push_back(g);
      }
      return values;
    };
    const std::vector<double> alone = run(false);
    const std::vector<double> whole = run(true);
    ASSERT_EQ(alone.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(alone[i], whole[i], 2e-5) << i;
  }
}

TEST(BertTest, ClassWeightsWeighTheLoss) {
  const auto model = Build(SmallConfig("bert", "BertForSequenceClassification"));
  const Tensor ids = RandomIndices({2, 5}, 23, 1);
  const auto loss = [&](const std::vector<int64_t>& labels, const Tensor& weights) {
    RunOptions options;
    options.class_weights = weights;
    return model
        ->Run({{keys::kInputIds, ids}, {keys::kLabels, Tensor::FromVector(labels, {2})}}, options)
        .at(keys::kLoss)
        .Item();
  };
  const double first = loss({0, -100}, Tensor());
  const double second = loss({-100, 2}, Tensor());
  const Tensor weights = Tensor::FromVector(std::vector<float>{3, 1, 0.5}, {3});
  EXPECT_NEAR(loss({0, 2}, weights), (3 * first + 0.5 * second) / 3.5, 1e-6);
}

// The mean over rows of the mean over columns; the sum over rows of it where a sum is asked for.
TEST(BertTest, LossesOfNumbersAndOfSeveralLabels) {
  for (const char* problem : {"regression", "multi_label_classification"}) {
    json config = SmallConfig("bert", "BertForSequenceClassification");
    config["problem_type"] = problem;
    const auto model = Build(config);
    const Tensor ids = RandomIndices({2, 5}, 23, 1);
    const std::vector<float> labels = {1, 0, 1, 0, 0, 1};
    const auto run = [&](LossReduction reduction, double smoothing = 0) {
      RunOptions options;
      options.loss_reduction = reduction;
      options.label_smoothing = smoothing;
      return model->Run(
          {{keys::kInputIds, ids}, {keys::kLabels, Tensor::FromVector(labels, {2, 3})}}, options);
    };
    EXPECT_THROW(run(LossReduction::kMean, 0.1), Error);
    const Bundle out = run(LossReduction::kMean);
    const std::vector<float> x = out.at(keys::kLogits).ToVector<float>();
    double expected = 0;
    for (size_t i = 0; i < 6; ++i) {
      const double p = 1 / (1 + std::exp(-static_cast<double>(x[i])));
      expected += config["problem_type"] == "regression" ? (x[i] - labels[i]) * (x[i] - labels[i])
                                                         : -std::log(labels[i] == 1 ? p : 1 - p);
    }
    EXPECT_NEAR(out.at(keys::kLoss).Item(), expected / 6, 1e-5) << problem;
    EXPECT_NEAR(run(LossReduction::kSum).at(keys::kLoss).Item(), expected / 3, 1e-5) << problem;
  }
}

TEST(BertTest, AttentionSeesBothSides) {
  const auto model = Build(SmallConfig("bert", "BertModel"));
  const auto first = [&](const Tensor& ids) {
    const Tensor hidden = model->Run({{keys::kInputIds, ids}}, {}).at(keys::kLastHiddenState);
    return Select(hidden, 1, 0).ToVector<float>();
  };
  EXPECT_NE(first(Ids({3, 4, 5})), first(Ids({3, 4, 6})));
}

TEST(BertTest, RefusesConfigurationsByName) {
  const auto problem = [](const char* key, json value) {
    json config = SmallConfig("bert", "BertForMaskedLM");
    config[key] = std::move(value);
    return Message(BuildModel(config, {.device = Device::Meta()}).status());
  };
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, json>>{{"position_embedding_type", "relative_key"},
                                                 {"is_decoder", true},
                                                 {"add_cross_attention", true},
                                                 {"pruned_heads", {{"0", {1}}}},
                                                 {"num_attention_heads", 3},
                                                 {"hidden_size", -4},
                                                 {"hidden_act", "gelu9"},
                                                 {"pad_token_id", 99},
                                                 {"hidden_dropout_prob", 1.5},
                                                 {"problem_type", "ranking"},
                                                 {"id2label", json::array()},
                                                 {"architectures", {"BertForQuestionAnswering"}}}) {
    const std::string message = problem(key, value);
    const std::string named = std::string(key) == "hidden_dropout_prob" ? "dropout" : key;
    EXPECT_NE(message.find(named), std::string::npos) << key << ": " << message;
  }
}

}  // namespace
}  // namespace tessera::models
