// SPDX-License-Identifier: Apache-2.0
// Tasks that write text or fill it in, from files on the disk to a trained model; what does not fit
// is named.
#include <gtest/gtest.h>

#include <set>

#include "autograd/autograd.h"
#include "core/thread_communicator.h"
#include "dist/mesh/mesh.h"
#include "models/hub/save_model.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/view/view.h"
#include "train/testing/task_runs.h"

namespace tessera::train {
namespace {

using TextTasksTest = TaskRuns;

TEST_F(TextTasksTest, MaskedLanguageModelling) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the film was good and the plot was bad . ";
  text.resize(text.size() - 2);  // [SEP] has the place of the last stop: all windows begin alike
  RunConfig config = Config("bert-tiny", Put("text.txt", text));
  config.tokenizer = Path("words");
  config.config_overrides = kSmallBert;
  config.seq_len = 22;
  config.max_steps = 150;
  for (const bool whole_words : {false, true}) {
    config.options["whole_word_mask"] = whole_words;
    config.out = Path(whole_words ? "words_run" : "tokens_run");
    RunSetup setup;
    const TrainState state = Train(config, &setup);
    EXPECT_EQ(setup.task->name, "masked_lm");
    EXPECT_LT(state.val_loss.value(), 0.7) << "of 14 words: 2.6 at first";
  }
  config.tokenizer = "byte";
  ExpectContains(Failure(config), "the tokenizer has no mask token");
}

void ExpectTextsAsTheReferences(const TrainState& state) {
  EXPECT_GT(state.val_metrics->at("bleu").get<double>(), 99.0) << state.val_loss.value();
  for (const char* score : {"rouge1", "rouge2", "rougeL", "exact_match"}) {
    EXPECT_GT(state.val_metrics->at(score).get<double>(), 0.9) << score;
  }
}

TEST_F(TextTasksTest, SequenceToSequenceWithGeneration) {
  std::string source;
  std::string target;
  for (int i = 0; i < 160; ++i) {
    source += i % 2 == 0 ? "yes\n" : "no\n";
    target += i % 2 == 0 ? "a man and a dog are here\n" : "two women go to the old house\n";
  }
  RunConfig config = Config("t5-mini", Put("source.txt", source));
  config.options["target_data"] = Put("target.txt", target);
  config.tokenizer = std::string(kTokenizers) + "t5";
  config.config_overrides = kSmallT5;
  config.options["predict_with_generate"] = true;
  config.options["num_beams"] = 2;
  config.max_steps = 150;
  config.options["max_target_length"] = 40;
  RunSetup setup;
  const TrainState state = Train(config, &setup);
  EXPECT_EQ(setup.task->name, "seq2seq");
  ExpectTextsAsTheReferences(state);
  const std::vector<std::string> lines = setup.data.objective.samples(*setup.model);
  ASSERT_EQ(lines.size(), 9u);
  ExpectContains(lines[1], "written:");
  config.options["val_target_data"] = config.options["target_data"];
  config.val_data = Put("short.txt", "yes\n");
  config.out = Path("uneven");
  ExpectContains(Failure(config), "short.txt");
}

// Whose words BLEU's rules for Western languages and ROUGE's own would not find.
TEST_F(TextTasksTest, ChineseAnswersAreComparedByCharacters) {
  std::string chats;
  for (int i = 0; i < 80; ++i) {
    chats += Concat("{\"prompt\": \"", i % 2 == 0 ? "yes" : "no", "\", \"response\": \"",
                    i % 2 == 0 ? "今天天气很好" : "我们去公园散步", "\"}\n");
  }
  RunConfig config = Config("chatglm-tiny", Put("chats.jsonl", chats));
  config.tokenizer = std::string(kTokenizers) + "chatglm";
  config.config_overrides =
      "hidden_size=16,num_layers=1,num_attention_heads=2,inner_hidden_size=32";
  config.options["predict_with_generate"] = true;
  config.options["max_source_length"] = 24;
  config.options["max_target_length"] = 40;
  config.max_steps = 150;
  ExpectTextsAsTheReferences(Train(config));
}

// Ranks write what one process writes, however they share the model and the texts.
TEST_F(TextTasksTest, EveryLayoutGeneratesAlike) {
  std::string pairs = "source\ttarget\n";
  std::string chats;
  for (int i = 0; i < 44; ++i) {
    const std::string source = i % 3 == 0 ? "yes" : "no";
    const std::string target = i % 3 == 0 ? "a man" : "two women go to the old house";
    pairs += source + "\t" + target + "\n";
    chats += Concat("{\"prompt\": \"", source, "\", \"response\": \"", target, "\"}\n");
  }
  RunConfig translates = Config("t5-mini", Put("pairs.tsv", pairs));
  translates.tokenizer = std::string(kTokenizers) + "t5";
  translates.config_overrides = kSmallT5;
  translates.options = nlohmann::json{{"source_column", "source"}, {"target_column", "target"}};
  RunConfig answers = Config("chatglm-tiny", Put("chats.jsonl", chats));
  answers.tokenizer = std::string(kTokenizers) + "chatglm";
  answers.config_overrides =
      "hidden_size=16,num_layers=2,num_attention_heads=2,inner_hidden_size=32";
  struct Layout {
    const char* name;
    int ranks;
    void (*set)(RunConfig& config);
  };
  const Layout layouts[] = {
      {"data", 2, [](RunConfig&) {}},
      {"tensor", 2, [](RunConfig& c) { c.tp = 2; }},
      {"sequence", 2, [](RunConfig& c) { c.tp = 2, c.sequence_parallel = true; }},
      {"sharded", 2, [](RunConfig& c) { c.zero = 3; }},
      {"pipeline", 2, [](RunConfig& c) { c.pp = 2; }},
      {"sharded_sequence", 4,
       [](RunConfig& c) { c.zero = 3, c.tp = 2, c.sequence_parallel = true; }},
  };
  for (RunConfig config : {translates, answers}) {
    for (const int64_t beams : {1, 2}) {
      config.options["predict_with_generate"] = true;
      config.options["num_beams"] = beams;
      config.options["max_source_length"] = 16;
      config.options["max_target_length"] = 16;
      config.max_steps = 12;
      config.val_fraction = 0.25;  // 11 rows: 3 batches, 2 ranks
      config.batch_size = 4;
      config.out = Path(Concat(config.model, beams));
      RunSetup setup;
      const TrainState alone = Train(config, &setup);
      ASSERT_TRUE(alone.val_metrics->contains("bleu")) << config.model;
      Trainer trainer(setup.config, *setup.model, setup.data);
      const std::vector<PredictedRow> rows = trainer.Predict(*setup.data.validation)->rows;
      ASSERT_EQ(rows.size(), 11u);
      for (const Layout& layout : layouts) {
        SCOPED_TRACE(Concat(config.model, ", ", beams, " beams, ", layout.name));
        RunConfig shared = config;
        layout.set(shared);
        const int64_t copies = layout.ranks / (shared.tp * shared.pp);
        shared.batch_size = 4 / copies;
        shared.out = Path(Concat(config.model, beams, layout.name));
        RunRanks(layout.ranks, [&](const Group& world) {
          const auto mesh = MakeMesh(shared, world);
          if (!mesh.ok()) throw std::runtime_error(Message(mesh.status()));
          auto setup = PrepareRun(shared, *mesh);
          if (!setup.ok()) throw std::runtime_error(Message(setup.status()));
          Trainer trainer(setup->config, *setup->model, setup->data, *mesh);
          const auto result = trainer.Train({.output = nullptr});
          if (!result.ok()) throw std::runtime_error(Message(result.status()));
          EXPECT_NEAR(trainer.state().val_loss.value(), alone.val_loss.value(), 1e-4);
          EXPECT_EQ(trainer.state().val_metrics, alone.val_metrics);
          const auto predicted = trainer.Predict(*setup->data.validation);
          EXPECT_EQ(predicted->rows, rows);
          EXPECT_EQ(predicted->found->metrics, alone.val_metrics);
        });
      }
    }
  }
}

TEST_F(TextTasksTest, SpanCorruptionBlankInfillingAndInstructions) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += Concat("one two three ", i % 3, " four five. ");
  struct Case {
    const char* model;
    const char* tokenizer;
    const char* overrides;
    const char* task;
  };
  const Case cases[] = {
      {"t5-mini", "t5", kSmallT5, "span_corruption"},
      {"glm-tiny", "glm",
       "hidden_size=16,num_layers=1,num_attention_heads=2,max_sequence_length=64",
       "blank_infilling"},
      {"chatglm-tiny", "chatglm",
       "hidden_size=16,num_layers=1,num_attention_heads=2,inner_hidden_size=32", "instruction"}};
  for (const Case& c : cases) {
    RunConfig config = Config(c.model, Put("text.txt", text));
    config.tokenizer = std::string(kTokenizers) + c.tokenizer;
    config.config_overrides = c.overrides;
    config.out = Path(c.task);
    config.max_steps = 40;
    config.eval_interval = 20;
    if (std::string(c.task) == "instruction") {
      std::string lines;
      for (int i = 0; i < 60; ++i) {
        lines += Concat("{\"prompt\": \"say ", i % 5, "\", \"response\": \"one two three\"}\n");
      }
      config.data = {Put("chat.jsonl", lines)};
      config.options["max_source_length"] = 24;
      config.options["max_target_length"] = 24;
    } else {
      config.seq_len = 32;
    }
    class Losses : public TrainerCallback {
     public:
      void OnEvaluate(const TrainState& state, TrainControl&) override {
        values.push_back(state.val_loss.value());
      }
      std::vector<double> values;
    } losses;
    auto setup = PrepareRun(config);
    ASSERT_TRUE(setup.ok()) << c.task << ": " << Message(setup.status());
    EXPECT_EQ(setup->task->name, c.task);
    Trainer trainer(setup->config, *setup->model, setup->data);
    const double before = trainer.Evaluate(*setup->data.validation, 0)->loss;
    trainer.AddCallback(&losses);
    const auto result = trainer.Train({.output = nullptr});
    ASSERT_TRUE(result.ok()) << Message(result.status());
    ASSERT_EQ(losses.values.size(), 2u);
    EXPECT_LT(losses.values[1], losses.values[0]) << c.task;
    EXPECT_LT(losses.values[0], before) << c.task;
  }
}

TEST_F(TextTasksTest, ARunThatWasStoppedGoesOnWithTheSameChoices) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the film was good and the plot was bad . ";
  text.resize(text.size() - 2);  // [SEP] has the place of the last stop: all windows begin alike
  RunConfig config = Config("bert-tiny", Put("text.txt", text));
  config.tokenizer = Path("words");
  config.config_overrides = kSmallBert;
  config.seq_len = 22;
  config.max_steps = 12;
  config.neftune_noise_alpha = 5;
  config.dropout = 0.1;
  config.save_interval = 5;
  const TrainState whole = Train(config);
  config.out = Path("stopped");
  class Stop : public TrainerCallback {
   public:
    void OnStepEnd(const TrainState& state, TrainControl& control) override {
      control.stop = state.step == 7;
    }
  } stop;
  auto first = PrepareRun(config);
  Trainer trainer(first->config, *first->model, first->data);
  trainer.AddCallback(&stop);
  ASSERT_EQ(trainer.Train({.output = nullptr})->state.step, 7);
  auto second = PrepareRun(config);
  Trainer rest(second->config, *second->model, second->data);
  ASSERT_TRUE(rest.Train({.resume = true, .output = nullptr}).ok());
  EXPECT_EQ(rest.state().loss, whole.loss);
  EXPECT_EQ(rest.state().val_loss.value(), whole.val_loss.value());
}

// One document per row: what padding is behind changes no bit of the others' losses, and a step
// is that of the documents one by one.
TEST_F(TextTasksTest, DocumentsAsPaddedRows) {
  std::string lines;
  for (int i = 0; i < 60; ++i) {
    lines += Concat("{\"text\": \"", std::string(static_cast<size_t>(1 + i * i % 23), 'a' + i % 26),
                    " number ", i, "\"}\n");
  }
  RunConfig config = Config("gpt-tiny", Put("text.jsonl", lines));
  config.options["packing"] = false;
  config.seq_len = 24;
  config.max_steps = 40;
  RunSetup setup;
  const TrainState state = Train(config, &setup);
  EXPECT_LT(state.loss, 3.0) << "of 257 bytes: 5.5 at first";
  const data::Dataset& rows = *setup.data.train;
  const auto losses = [&](const std::vector<data::Sample>& samples) {
    const NoGrad no_grad;
    const data::Batch batch = *rows.MakeBatch(samples);
    return setup.model->Run(batch.tensors, {.loss_reduction = LossReduction::kNone})
        .at(keys::kLoss);
  };
  std::vector<data::Sample> all;
  for (int64_t i = 0; i < 12; ++i) all.push_back({i, i});
  const Tensor together = losses(all);  // [rows, longest]
  std::set<int64_t> lengths;
  for (const data::Sample& sample : all) {
    const std::vector<float> alone = losses({sample}).ToVector<float>();
    lengths.insert(std::ssize(alone));
    const std::vector<float> row = Select(together, 0, sample.index).ToVector<float>();
    for (size_t t = 0; t < row.size(); ++t) {
      EXPECT_EQ(row[t], t < alone.size() ? alone[t] : 0.0F) << sample.index << " " << t;
    }
  }
  EXPECT_GT(lengths.size(), 3u);
  config.options["reset_at_documents"] = true;
  ExpectContains(Failure(config), "reset_at_documents is set, which needs packing (it is false)");
  config = Config("bert-tiny", Put("reviews.jsonl", [] {
                    std::string text;
                    for (int i = 0; i < 60; ++i) {
                      text += Concat("{\"text\": \"the film was ", i % 3 == 0 ? "good and " : "",
                                     "bad\"}\n");
                    }
                    return text;
                  }()));
  config.tokenizer = Path("words");
  config.config_overrides = kSmallBert;
  config.options["packing"] = false;
  config.out = Path("bert");
  config.batch_size = 4;
  config.gradient_accumulation_steps = 4;
  config.val_fraction = 0.3;  // of fewer rows no token may be masked
  config.max_steps = 20;
  RunSetup bert;
  const TrainState alone = Train(config, &bert);
  EXPECT_LT(alone.val_loss.value(), 2.5) << "of 14 words: 2.6 at first";
  const std::vector<data::Sample> second = {{1, 1}};
  EXPECT_EQ(bert.data.train->MakeBatch(second)->at(keys::kInputIds).shape(), (Shape{1, 6}))
      << "[CLS] the film was bad [SEP]";
  struct Layout {
    const char* name;
    void (*set)(RunConfig& config);
  };
  for (const Layout& layout :
       {Layout{"sequence", [](RunConfig& c) { c.tp = 2, c.sequence_parallel = true; }},
        Layout{"sharded", [](RunConfig& c) { c.zero = 3, c.gradient_accumulation_steps = 2; }},
        Layout{"pipeline", [](RunConfig& c) { c.pp = 2; }}}) {
    SCOPED_TRACE(layout.name);
    RunConfig shared = config;
    layout.set(shared);
    shared.out = Path(layout.name);
    RunRanks(2, [&](const Group& world) {
      const auto mesh = MakeMesh(shared, world);
      if (!mesh.ok()) throw std::runtime_error(Message(mesh.status()));
      auto own = PrepareRun(shared, *mesh);
      if (!own.ok()) throw std::runtime_error(Message(own.status()));
      Trainer trainer(own->config, *own->model, own->data, *mesh);
      const auto result = trainer.Train({.output = nullptr});
      if (!result.ok()) throw std::runtime_error(Message(result.status()));
      EXPECT_NEAR(trainer.state().val_loss.value(), alone.val_loss.value(), 1e-4);
    });
  }
  config.options["noise_density"] = 0.1;
  config.model = "t5-mini";
  config.task = "span_corruption";
  config.tokenizer = std::string(kTokenizers) + "t5";
  config.config_overrides = kSmallT5;
  ExpectContains(Failure(config), "packing is set, which needs task causal_lm, chat or masked_lm");
}

TEST_F(TextTasksTest, TheVocabularyGrowsWithTheTokenizer) {
  RunConfig config = Config("bert-tiny", Put("text.txt", "the film was good . the plot was bad ."));
  config.tokenizer = Path("words");
  config.config_overrides = kSmallBert;
  config.options["packing"] = false;
  config.val_fraction = 0;
  const auto first = PrepareRun(config);
  ASSERT_TRUE(first.ok()) << Message(first.status());
  config.model = Path("model");
  ASSERT_TRUE(models::SaveModel(*first->model, config.model, first->tokenizer.get()).ok());
  config.config_overrides = "";
  config.tokenizer = Path("more");
  config.out = Path("grown");
  Put("more/vocab.txt",
      "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\nfilm\nplot\nthe\nwas\nand\n.\n##s\n"
      "new\nolder\n");
  const auto grown = PrepareRun(config);
  ASSERT_TRUE(grown.ok()) << Message(grown.status());
  EXPECT_EQ(grown->model->vocab_size(), 16);
  ASSERT_EQ(grown->warnings.size(), 1u);
  ExpectContains(grown->warnings[0], "grows from 14 words to the tokenizer's 16");
  // An adapter leaves it as it is, and data that use the words are refused.
  config.out = Path("adapter");
  config.adapter = "lora";
  const auto adapted = PrepareRun(config);
  ASSERT_TRUE(adapted.ok()) << Message(adapted.status());
  EXPECT_EQ(adapted->model->vocab_size(), 14);
  const std::vector<data::Sample> row = {{0, 0}};
  EXPECT_TRUE(adapted->data.train->MakeBatch(row).ok());
  config.data = {Put("new.txt", "the new film")};
  const auto used = PrepareRun(config);
  ASSERT_TRUE(used.ok()) << Message(used.status());
  ExpectContains(Message(used->data.train->MakeBatch(row).status()),
                 "new.txt: token id 14 at position 1 is beyond the vocabulary of 14");
}

TEST_F(TextTasksTest, WhatDoesNotFitIsNamed) {
  RunConfig config = ReviewRun();
  config.task = "image_classification";
  ExpectContains(Failure(config),
                 "task 'image_classification' is not for a 'bert' model, which has: masked_lm, "
                 "text_classification");
  config.task = "masked_ml";
  ExpectContains(Failure(config), "unknown task 'masked_ml'; did you mean 'masked_lm'?");
  config.task = "";
  config.options["noise_density"] = 0.3;
  ExpectContains(Failure(config),
                 "noise_density is set, which needs task span_corruption (it is "
                 "text_classification)");
  config.options->erase("noise_density");
  config.config_overrides = "hidden_sizes=3";
  ExpectContains(Failure(config), "no key 'hidden_sizes'; did you mean 'hidden_size'?");
  config.config_overrides = "hidden_size";
  ExpectContains(Failure(config), "'hidden_size' is not of the form key=value");
  config.config_overrides = "hidden_size=three";
  ExpectContains(Failure(config), "'hidden_size' must be an integer");
  config.config_overrides = kSmallBert;
  config.seq_len = 33;
  ExpectContains(Failure(config), "seq_len 33 is longer than the model's 32 positions");
  config.seq_len.reset();
  config.options["label_columns"] = "lable";
  ExpectContains(Failure(config), "no column 'lable'; did you mean 'label'?");
  config.options->erase("label_columns");
  config.tokenizer = std::string(kTokenizers) + "t5";
  ExpectContains(Failure(config), "the tokenizer has no classification token");
  config.tokenizer = Path("words");
  config.val_data = Put("odd.tsv", "sentence\tlabel\nthe film\tneutral\n");
  ExpectContains(Failure(config), "odd.tsv:2: unknown label 'neutral'");
}

}  // namespace
}  // namespace tessera::train
