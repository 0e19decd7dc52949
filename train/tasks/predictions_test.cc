// SPDX-License-Identifier: Apache-2.0
// What each task predicts of data with labels and without: what the model's own outputs say, the
// same on every layout.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/autograd.h"
#include "base/json_text.h"
#include "core/thread_communicator.h"
#include "dist/mesh/mesh.h"
#include "models/classification.h"
#include "models/hub/save_model.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "train/testing/task_runs.h"

namespace tessera::train {
namespace {

class PredictionsTest : public TaskRuns {
 protected:
  // A run's model as a folder.
  std::string Trained(const RunConfig& config) {
    RunSetup setup;
    Train(config, &setup);
    EXPECT_TRUE(models::SaveModel(*setup.model, Path("model"), setup.tokenizer.get()).ok());
    return Path("model");
  }
  StatusOr<RunSetup> Open(const std::string& model, const std::string& data,
                          const nlohmann::json& options = nlohmann::json::object()) {
    RunConfig look = Config(model, data);
    look.options = options;
    return PrepareEvaluation(look, {}, {.cache = Path("look"), .prediction = true});
  }
  // The rows; those of 2 data-parallel ranks, of ranks that cut the parameters and of a split model
  // are the same.
  PredictionResult Predict(const std::string& model, const std::string& data,
                           const nlohmann::json& options = nlohmann::json::object()) {
    auto setup = Open(model, data, options);
    EXPECT_TRUE(setup.ok()) << Message(setup.status());
    if (!setup.ok()) return {};
    Trainer trainer(setup->config, *setup->model, setup->data);
    auto result = trainer.Predict(*setup->data.validation);
    EXPECT_TRUE(result.ok()) << Message(result.status());
    EXPECT_EQ(std::ssize(result->rows), setup->data.validation->size());
    EXPECT_EQ(result->found.has_value(), setup->data.objective.labelled);
    RunRanks(3, [&](const Group& world) {
      auto mine = Open(model, data, options);
      Trainer shared(mine->config, *mine->model, mine->data, dist::Mesh(world, {}));
      const auto rows = shared.Predict(*mine->data.validation);
      EXPECT_TRUE(rows.ok()) << Message(rows.status());
      EXPECT_EQ(rows->rows, result->rows);
    });
    return *std::move(result);
  }
  // The share of rows whose prediction is the label.
  static double Accuracy(const std::vector<PredictedRow>& rows) {
    double right = 0;
    for (const PredictedRow& row : rows) right += row.at("prediction") == row.at("label") ? 1 : 0;
    return right / static_cast<double>(rows.size());
  }
  static void ExpectNoLabels(const std::vector<PredictedRow>& rows) {
    for (const PredictedRow& row : rows) EXPECT_FALSE(row.contains("label")) << row;
  }
  static std::vector<PredictedRow> Without(std::vector<PredictedRow> rows, const char* key) {
    for (PredictedRow& row : rows) row.erase(key);
    return rows;
  }
};

TEST_F(PredictionsTest, NamesOfTexts) {
  const std::string model = Trained(ReviewRun());
  const std::string labelled = Reviews("more.tsv", 31);
  const PredictionResult result = Predict(model, labelled);
  EXPECT_EQ(Accuracy(result.rows), 1.0);
  EXPECT_EQ(result.found->metrics->at("accuracy"), 1.0);
  // The probabilities are the softmax of the model's logits, in the order of its labels.
  const auto setup = Open(model, labelled);
  const NoGrad no_grad;
  const auto batch = setup->data.validation->MakeBatch(std::vector<data::Sample>{{3, 3}});
  const std::vector<float> logits =
      setup->model->Run(batch->tensors, {}).at(keys::kLogits).ToVector<float>();
  const auto probabilities = result.rows[3].at("probabilities").get<std::vector<double>>();
  ASSERT_EQ(probabilities.size(), 2u);
  EXPECT_NEAR(probabilities[0] + probabilities[1], 1, 1e-12);
  EXPECT_NEAR(probabilities[0] / probabilities[1],
              std::exp(static_cast<double>(logits[0]) - static_cast<double>(logits[1])),
              1e-4 * probabilities[0] / probabilities[1]);
  EXPECT_EQ(result.rows[3].at("prediction"),
            models::LabelNames(setup->model->config())[probabilities[1] > probabilities[0]]);
  // Without the column of the labels, or with nothing in it, or with -1 throughout, as GLUE's test
  // sets have them.
  std::string bare = "index\tsentence\n";
  std::string hidden = "sentence\tlabel\n";
  for (int i = 0; i < 31; ++i) {
    const std::string text = Concat(i % 3 == 0 ? "the film was " : "the plots and the film was ",
                                    i * i % 7 < 3 ? "good" : "bad", i % 2 == 0 ? " ." : "");
    bare += Concat(i, "\t", text, "\n");
    hidden += text + "\t-1\n";
  }
  std::string nulls, blank = "sentence\tlabel\n";
  for (size_t at = hidden.find('\n') + 1, end; at < hidden.size(); at = end + 1) {
    end = hidden.find('\n', at);
    const std::string text = hidden.substr(at, hidden.find('\t', at) - at);
    nulls += nlohmann::json{{"sentence", text}, {"label", nullptr}}.dump() + "\n";
    blank += text + "\t\n";
  }
  for (const std::string& path : {Put("bare.tsv", bare), Put("hidden.tsv", hidden),
                                  Put("nulls.jsonl", nulls), Put("blank.tsv", blank)}) {
    const PredictionResult unlabelled = Predict(model, path);
    ExpectNoLabels(unlabelled.rows);
    EXPECT_EQ(unlabelled.rows, Without(result.rows, "label")) << path;
  }
  ExpectContains(Message(Open(model, Put("half.jsonl", R"({"sentence": "good", "label": "a"}
{"sentence": "bad", "label": null})"))
                             .status()),
                 "half.jsonl:2: \"label\" must be text, a number or a truth value; it is null");
  ExpectContains(Message(Open(model, Path("bare.tsv"), {{"label_columns", "stars"}}).status()),
                 "stars");
  ExpectContains(Message(Open(model, Put("stars.tsv", "sentence\tlabel\ngood\tthree\n")).status()),
                 "labels that the model does not know");
}

TEST_F(PredictionsTest, NumbersAndAnswers) {
  std::string text = "sentence\tlabel\n";
  for (int i = 0; i < 40; ++i) text += i % 3 == 0 ? "good film\t2.5\n" : "bad film\t-1.5\n";
  RunConfig config = ReviewRun();
  config.data = {Put("scores.tsv", text)};
  config.max_steps = 100;
  PredictionResult result = Predict(Trained(config), Path("scores.tsv"));
  EXPECT_EQ(result.rows[0].at("label"), 2.5);
  EXPECT_NEAR(result.rows[0].at("prediction").get<double>(), 2.5, 1);
  EXPECT_FALSE(result.rows[0].contains("probabilities"));
  const std::string bare = Put("bare.tsv", "sentence\ngood film\nbad film\n");
  PredictionResult unlabelled = Predict(Path("model"), bare);
  ASSERT_EQ(unlabelled.rows.size(), 2u);
  EXPECT_NEAR(unlabelled.rows[0].at("prediction").get<double>(),
              result.rows[0].at("prediction").get<double>(), 1e-5);
  EXPECT_EQ(Predict(Path("model"), Put("hidden.tsv", "sentence\tlabel\ngood film\t-1\n")).rows,
            std::vector<PredictedRow>({unlabelled.rows[0]}));

  text = "sentence\tnice\tlong\n";
  for (int i = 0; i < 80; ++i) {
    text += Concat(i % 3 == 0 ? "good" : "bad", i % 2 == 0 ? " film and the plot" : "", "\t",
                   i % 3 == 0, "\t", i % 2 == 0, "\n");
  }
  config.data = {Put("answers.tsv", text)};
  config.options["label_columns"] = "nice,long";
  config.lr = 3e-3;
  config.max_steps = 300;
  config.out = Path("answers");
  result = Predict(Trained(config), Path("answers.tsv"), {{"label_columns", "nice,long"}});
  EXPECT_EQ(Accuracy(result.rows), 1.0);
  EXPECT_EQ(result.rows[0].at("prediction"), PredictedRow({"nice", "long"}));
  EXPECT_EQ(result.rows[1].at("prediction"), PredictedRow::array());
  EXPECT_EQ(result.rows[0].at("probabilities").size(), 2u);
  for (const char* columns : {"long,nice", "nice", "nice,long,label"}) {
    std::string table = "sentence\tnice\tlong\tlabel\n";
    for (int i = 0; i < 4; ++i) table += "good film\t1\t0\t0.5\n";
    EXPECT_FALSE(Open(Path("model"), Put("other.tsv", table), {{"label_columns", columns}}).ok())
        << columns;
  }
  ExpectContains(
      Message(Open(Path("model"), Path("answers.tsv"), {{"label_columns", "long,nice"}}).status()),
      "label_columns long,nice are not the model's labels, which are nice,long");
  unlabelled = Predict(Path("model"), Put("bare.tsv", "sentence\ngood film and the plot\n"));
  EXPECT_EQ(unlabelled.rows[0].at("prediction"), PredictedRow({"nice", "long"}));
}

TEST_F(PredictionsTest, Clozes) {
  std::string text = "sentence\tlabel\n";
  std::string bare = "sentence\n";
  for (int i = 0; i < 80; ++i) {
    const std::string sentence = i * i % 7 < 3 ? "one two three" : "five four one";
    text += sentence + (i * i % 7 < 3 ? "\tpositive\n" : "\tnegative\n");
    bare += sentence + "\n";
  }
  RunConfig config = Config("glm-tiny", Put("reviews.tsv", text));
  config.tokenizer = std::string(kTokenizers) + "glm";
  config.config_overrides =
      "hidden_size=16,num_layers=1,num_attention_heads=2,max_sequence_length=64";
  config.options["cloze_pattern"] = "{text} is [MASK].";
  config.options["label_words"] = "positive=two,negative=four one";
  const PredictionResult result = Predict(Trained(config), Path("reviews.tsv"), *config.options);
  EXPECT_EQ(Accuracy(result.rows), 1.0);
  const PredictionResult unlabelled =
      Predict(Path("model"), Put("bare.tsv", bare), *config.options);
  EXPECT_EQ(unlabelled.rows, Without(result.rows, "label"));
}

TEST_F(PredictionsTest, TextsOfSourcesAndPrompts) {
  std::string pairs = "source\ttarget\n";
  std::string sources = "source\n";
  std::string lines;
  std::string chats;
  std::string prompts;
  for (int i = 0; i < 60; ++i) {
    const std::string source = i % 3 == 0 ? "yes" : "no";
    const std::string target = i % 3 == 0 ? "a man" : "two women go to the old house";
    pairs += source + "\t" + target + "\n";
    sources += source + "\n";
    lines += source + "\n";
    chats += Concat("{\"prompt\": \"", source, "\", \"response\": \"", target, "\"}\n");
    prompts += Concat("{\"prompt\": \"", source, "\"}\n");
  }
  RunConfig translates = Config("t5-mini", Put("pairs.tsv", pairs));
  translates.tokenizer = std::string(kTokenizers) + "t5";
  translates.config_overrides = kSmallT5;
  translates.max_steps = 150;
  const nlohmann::json lengths = {{"max_source_length", 16}, {"max_target_length", 20}};
  translates.options = lengths;
  PredictionResult result = Predict(Trained(translates), Path("pairs.tsv"), lengths);
  EXPECT_GT(Accuracy(result.rows), 0.9);
  EXPECT_NEAR(result.found->metrics->at("exact_match").get<double>(), Accuracy(result.rows), 1e-9);
  for (const std::string& path : {Put("sources.tsv", sources), Put("lines.txt", lines)}) {
    EXPECT_EQ(Predict(Path("model"), path, lengths).rows, Without(result.rows, "label")) << path;
  }

  RunConfig answers = Config("chatglm-tiny", Put("chats.jsonl", chats));
  answers.tokenizer = std::string(kTokenizers) + "chatglm";
  answers.config_overrides =
      "hidden_size=16,num_layers=1,num_attention_heads=2,inner_hidden_size=32";
  answers.options = lengths;
  answers.out = Path("chat");
  answers.max_steps = 100;
  result = Predict(Trained(answers), Path("chats.jsonl"), lengths);
  EXPECT_GT(Accuracy(result.rows), 0.9);
  EXPECT_EQ(Predict(Path("model"), Put("prompts.jsonl", prompts), lengths).rows,
            Without(result.rows, "label"));
  // As many rows as records: none is left out.
  ExpectContains(
      Message(Open(Path("model"), Put("gap.jsonl", "{\"prompt\": \"yes\"}\n{\"prompt\": \"\"}\n"),
                   lengths)
                  .status()),
      "gap.jsonl:2: prompt is not there, or empty");
}

TEST_F(PredictionsTest, WhatPredictsNothingIsRefused) {
  RunConfig config = Config("gpt-tiny", Put("text.txt", std::string(4000, 'x')));
  config.seq_len = 16;
  config.max_steps = 1;
  config.tokenizer = "byte";
  const std::string model = Trained(config);
  ExpectContains(Message(Open(model, Path("text.txt")).status()),
                 "there is no task that predicts for a 'gpt2' model; `tessera generate` writes");
  RunConfig look = Config(model, Path("text.txt"));
  look.task = "causal_lm";
  ExpectContains(
      Message(PrepareEvaluation(look, {}, {.cache = Path("look"), .prediction = true}).status()),
      "task 'causal_lm' predicts nothing");
}

// Where the options leave it out; the trained model's folder has it, too.
TEST_F(PredictionsTest, TheFoldersGenerationConfigCounts) {
  std::string pairs = "source\ttarget\n";
  for (int i = 0; i < 60; ++i) pairs += "no\ttwo women go to the old house\n";
  RunConfig config = Config("t5-mini", Put("pairs.tsv", pairs));
  config.tokenizer = std::string(kTokenizers) + "t5";
  config.config_overrides = kSmallT5;
  config.max_steps = 150;
  const nlohmann::json lengths = {{"max_source_length", 16}, {"max_target_length", 20}};
  config.options = lengths;
  const std::string model = Trained(config);
  const std::string path = model + "/generation_config.json";
  const auto tokenizer = data::LoadTokenizer(model);
  ASSERT_TRUE(tokenizer.ok());
  const std::vector<int32_t> ids = (*tokenizer)->Encode("two women go to the old house");
  ASSERT_GT(ids.size(), 4u);
  const PredictionResult usual = Predict(model, Path("pairs.tsv"), lengths);
  EXPECT_TRUE(usual.rows[0].at("prediction").get<std::string>().starts_with("two women "));

  const nlohmann::json ends = {ids[3], 99};
  Put("model/generation_config.json",
      nlohmann::json{{"eos_token_id", ends}, {"min_length", 1}, {"num_return_sequences", 4}}
          .dump());
  EXPECT_EQ(Predict(model, Path("pairs.tsv"), lengths).rows[0].at("prediction"),
            (*tokenizer)->Decode(std::vector<int32_t>(ids.begin(), ids.begin() + 4), {}));

  RunConfig again = Config(model, Path("pairs.tsv"));
  again.out = Path("again");
  again.max_steps = 1;
  again.options = lengths;
  RunSetup setup = *PrepareRun(again);
  Trainer trainer(setup.config, *setup.model, setup.data);
  ASSERT_TRUE(trainer.Train({.output = nullptr}).ok());
  ASSERT_TRUE(trainer.SaveModel(Path("again/model"), setup.tokenizer.get()).ok());
  const auto kept = ReadJsonFile(Path("again/model/generation_config.json"));
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(*kept, nlohmann::json({{"eos_token_id", {*(*tokenizer)->eos_id(), ids[3], 99}},
                                   {"min_length", 1},
                                   {"num_return_sequences", 4}}));

  Put("model/generation_config.json",
      R"({"num_beams": 2, "stop_strings": ["x"], "guidance_scale": 1.5})");
  ExpectContains(Message(Open(model, Path("pairs.tsv"), lengths).status()),
                 "stop strings are not supported with num_beams above 1");
  nlohmann::json greedy = lengths;
  greedy["num_beams"] = 1;
  const auto opened = Open(model, Path("pairs.tsv"), greedy);
  ASSERT_TRUE(opened.ok()) << Message(opened.status());
  EXPECT_EQ(opened->warnings,
            std::vector<std::string>{path + ": 'guidance_scale': 1.5 is not supported, and not "
                                            "applied"});
  Put("model/generation_config.json", "[]");
  EXPECT_EQ(Failure(again), path + ": not a JSON object");
}

}  // namespace
}  // namespace tessera::train
