// SPDX-License-Identifier: Apache-2.0
// Tasks with labels, from files on the disk to a trained model: small models learn what their data
// say, and evaluations measure it alike on any number of ranks.
#include <gtest/gtest.h>

#include "base/file.h"
#include "core/thread_communicator.h"
#include "dist/mesh/mesh.h"
#include "models/classification.h"
#include "models/hub/save_model.h"
#include "nlohmann/json.hpp"
#include "train/testing/task_runs.h"

namespace tessera::train {
namespace {

using LabelTasksTest = TaskRuns;

constexpr char kSmallVit[] =
    "image_size=8,hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32";

TEST_F(LabelTasksTest, TextClassificationLearnsAndSavesItsLabels) {
  RunSetup setup;
  const TrainState state = Train(ReviewRun(), &setup);
  EXPECT_EQ(setup.task->name, "text_classification");
  EXPECT_EQ(state.val_metrics->at("accuracy"), 1.0);
  EXPECT_EQ(state.val_metrics->at("f1"), 1.0);
  EXPECT_LT(state.val_loss.value(), 0.2);
  EXPECT_EQ(models::LabelNames(setup.model->config()),
            (std::vector<std::string>{"negative", "positive"}));
  // The folder is evaluated, and fine-tuned on other labels with a new head.
  ASSERT_TRUE(models::SaveModel(*setup.model, Path("model"), setup.tokenizer.get()).ok());
  RunConfig look = Config(Path("model"), Reviews("more.tsv", 31));
  const auto found = PrepareEvaluation(look, {}, {.cache = Path("look")});
  ASSERT_TRUE(found.ok()) << Message(found.status());
  EXPECT_EQ(found->data.validation->size(), 31);
  Trainer trainer(found->config, *found->model, found->data);
  EXPECT_EQ(trainer.Evaluate(*found->data.validation, 0)->metrics->at("accuracy"), 1.0);
  look.data = {Put("stars.tsv", "sentence\tlabel\nthe film\tthree\nthe plot\tone\nbad\ttwo\n")};
  ExpectContains(Message(PrepareEvaluation(look, {}, {.cache = Path("look")}).status()),
                 "labels that the model does not know; it has: negative, positive");
  // The trained head is replaced where that is asked for.
  look.val_fraction = 0;
  look.out = Path("stars");
  EXPECT_EQ(Failure(look),
            Path("model") +
                "/model.safetensors: tensor 'classifier.weight' of the head has shape "
                "[2, 16], and the labels of the data ask for [3, 16]; "
                "--ignore-mismatched-sizes true makes a new head");
  look.ignore_mismatched_sizes = true;
  const auto fresh = PrepareRun(look);
  ASSERT_TRUE(fresh.ok()) << Message(fresh.status());
  ASSERT_EQ(fresh->warnings.size(), 1u);
  ExpectContains(fresh->warnings[0], "classifier");
  EXPECT_EQ(models::LabelNames(fresh->model->config()).size(), 3u);
}

TEST_F(LabelTasksTest, MetricsAreTheSameOnEveryNumberOfRanks) {
  RunConfig config = ReviewRun();
  config.batch_size = 7;  // the last batches are uneven, and one rank has none
  config.options["class_weights"] = "0.25,2";
  std::vector<EvaluationResult> results;
  for (const int ranks : {1, 2, 3}) {
    RunRanks(ranks, [&](const Group& world) {
      const dist::Mesh mesh(world, {});
      auto setup = PrepareRun(config, mesh);
      if (!setup.ok()) throw std::runtime_error(Message(setup.status()));
      Trainer trainer(setup->config, *setup->model, setup->data, mesh);
      const auto found = trainer.Evaluate(*setup->data.validation, 0);
      if (world->rank() == 0) results.push_back(*found);
    });
  }
  ASSERT_EQ(results.size(), 3u);
  for (const EvaluationResult& other : results) {
    EXPECT_EQ(other.loss, results[0].loss);
    EXPECT_EQ(other.metrics, results[0].metrics);
  }
}

// A label of weight 0 does not count: neither in the sum nor in what it is divided by.
TEST_F(LabelTasksTest, ClassWeightsMakeAWeightedMean) {
  RunConfig config = ReviewRun();
  config.val_data = Reviews("all.tsv", 40);
  config.options["class_weights"] = "0,3";
  const auto loss = [&]() {
    auto setup = PrepareRun(config);
    EXPECT_TRUE(setup.ok()) << Message(setup.status());
    Trainer trainer(setup->config, *setup->model, setup->data);
    return trainer.Evaluate(*setup->data.validation, 0)->loss;
  };
  const double weighted = loss();
  std::string positive = "sentence\tlabel\n";
  const std::string all = *ReadFile(Path("all.tsv"));
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = all.find('\n', begin) + 1;
    const std::string line = all.substr(begin, end - begin);
    if (line.find("positive") != std::string::npos) positive += line;
    begin = end;
  }
  config.val_data = Put("positive.tsv", positive);
  config.options->erase("class_weights");
  EXPECT_NEAR(weighted, loss(), 1e-6);
  config.options["class_weights"] = "balanced";
  auto setup = PrepareRun(config);
  ASSERT_TRUE(setup.ok());
  const std::vector<float> weights = setup->data.objective.class_weights.ToVector<float>();
  int good = 0;
  for (int i = 0; i < 120; ++i) good += i * i % 7 < 3;
  EXPECT_NEAR(weights[0], 120.0 / (2 * (120 - good)), 1e-5);
  EXPECT_NEAR(weights[1], 120.0 / (2 * good), 1e-5);
  config.options["class_weights"] = "1,2,3";
  ExpectContains(Failure(config), "class_weights has 3 numbers for 2 labels");
  config.options["class_weights"] = "1,x";
  ExpectContains(Failure(config), "'x' is no weight");
}

// Hugging Face's label smoother judges evaluations too. A loss is affine in the share.
TEST_F(LabelTasksTest, LabelsAreSmoothedInTrainingAndEvaluation) {
  RunConfig config = ReviewRun();
  config.options["class_weights"] = "0.5,2";
  config.max_steps = 1;
  const auto losses = [&](double smoothing) {
    config.label_smoothing = smoothing;
    config.out = Path(Concat("run", smoothing));
    const TrainState state = Train(config);
    return std::pair(state.loss, state.val_loss.value());
  };
  const auto [plain, plain_val] = losses(0);
  const auto [half, half_val] = losses(0.5);
  const auto [all, all_val] = losses(1);
  EXPECT_NEAR(half, (plain + all) / 2, 1e-6);
  EXPECT_GT(std::abs(half - plain), 1e-4);
  // One step has been taken: only about.
  EXPECT_NEAR(half_val, (plain_val + all_val) / 2, 5e-3);
  EXPECT_GT(std::abs(half_val - plain_val), 1e-4);
  config = ReviewRun();
  config.label_smoothing = 0.1;
  config.data = {Put("scores.tsv", "sentence\tlabel\ngood film\t2.5\nbad film\t-1.5\n")};
  ExpectContains(Failure(config), "label_smoothing is for labels of which each row has one");
}

TEST_F(LabelTasksTest, NumbersAndSeveralAnswers) {
  std::string text = "sentence\tlabel\n";
  for (int i = 0; i < 80; ++i) text += i % 3 == 0 ? "good film\t2.5\n" : "bad film\t-1.5\n";
  RunConfig config = ReviewRun();
  config.data = {Put("scores.tsv", text)};
  config.max_steps = 200;
  TrainState state = Train(config);
  EXPECT_GT(state.val_metrics->at("pearson").get<double>(), 0.95);
  EXPECT_GT(state.val_metrics->at("spearman").get<double>(), 0.7);
  EXPECT_LT(state.val_metrics->at("mse").get<double>(), 0.3);
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
  RunSetup setup;
  state = Train(config, &setup);
  EXPECT_EQ(state.val_metrics->at("accuracy"), 1.0);
  EXPECT_EQ(setup.model->config().at("problem_type"), "multi_label_classification");
}

// Data may say the ids of the labels that a folder names.
TEST_F(LabelTasksTest, AFoldersNamesStay) {
  RunSetup setup;
  Train(ReviewRun(), &setup);
  ASSERT_TRUE(models::SaveModel(*setup.model, Path("model"), setup.tokenizer.get()).ok());
  const std::vector<std::string> names = {"negative", "positive"};
  std::string ids = *ReadFile(Reviews("named.tsv", 31));
  for (size_t id = 0; id < 2; ++id) {
    for (size_t at = 0; (at = ids.find(names[id], at)) != std::string::npos;) {
      ids.replace(at, names[id].size(), std::to_string(id));
    }
  }
  RunConfig look = Config(Path("model"), Put("ids.tsv", ids));
  look.max_steps = 1;
  for (const char* file : {"ids.tsv", "named.tsv"}) {
    SCOPED_TRACE(file);
    look.out = Path(Concat("tuned ", file));
    look.data = {Path(file)};
    auto found = PrepareEvaluation(look, {}, {.cache = Path("look"), .prediction = true});
    ASSERT_TRUE(found.ok()) << Message(found.status());
    Trainer trainer(found->config, *found->model, found->data);
    const auto predicted = trainer.Predict(*found->data.validation);
    ASSERT_TRUE(predicted.ok()) << Message(predicted.status());
    EXPECT_EQ(predicted->found->metrics->at("accuracy"), 1.0);
    EXPECT_EQ(predicted->rows[0].at("label"), "positive");
    RunSetup tuned;
    EXPECT_EQ(Train(look, &tuned).val_metrics->at("accuracy"), 1.0);
    EXPECT_EQ(models::LabelNames(tuned.model->config()), names);
  }
  // A few ids of a folder with names are labels of their own.
  look.data = {Put("one.tsv", "sentence\tlabel\ngood film\t1\nthe plot\t1\n")};
  look.val_fraction = 0;
  ExpectContains(Failure(look), "the labels of the data ask for [1, 16]");
}

// As transformers has it: a folder with one label and no `problem_type` is a regression.
TEST_F(LabelTasksTest, OneLabelIsAScore) {
  const auto stars = [&](const std::string& name, const char* best) {
    std::string text = "sentence\tlabel\n";
    for (int i = 0; i < 80; ++i)
      text += i % 3 == 0 ? Concat("good film\t", best, "\n") : "bad film\t1\n";
    return Put(name, text);
  };
  RunConfig config = ReviewRun();
  config.data = {stars("stars.tsv", "5.0")};
  RunSetup setup;
  Train(config, &setup);
  // Of a new model whole numbers are names.
  EXPECT_EQ(models::LabelNames(setup.model->config()), (std::vector<std::string>{"1", "5"}));
  config.data = {stars("half.tsv", "5.5")};
  config.out = Path("scores");
  config.max_steps = 300;
  Train(config, &setup);
  ASSERT_TRUE(models::SaveModel(*setup.model, Path("model"), setup.tokenizer.get()).ok());
  nlohmann::json folder = setup.model->config();
  ASSERT_EQ(models::LabelNames(folder).size(), 1u);
  folder.erase("problem_type");
  models::SetLabels({"stars"}, &folder);
  Put("model/config.json", folder.dump());

  RunConfig look = Config(Path("model"), Path("stars.tsv"));
  look.max_steps = 1;
  look.out = Path("look");
  RunSetup tuned;
  // The trained head is kept, and so is its name.
  EXPECT_LT(Train(look, &tuned).val_metrics->at("mse").get<double>(), 1);
  EXPECT_EQ(tuned.model->config().at("problem_type"), "regression");
  EXPECT_EQ(models::LabelNames(tuned.model->config()), std::vector<std::string>{"stars"});
  const auto found = PrepareEvaluation(look, {}, {.cache = Path("cache")});
  ASSERT_TRUE(found.ok()) << Message(found.status());
  Trainer trainer(found->config, *found->model, found->data);
  EXPECT_LT(trainer.Evaluate(*found->data.validation, 0)->metrics->at("mse").get<double>(), 1);
  // Labels that are words need another head.
  look.data = {Reviews("reviews.tsv", 40)};
  ExpectContains(Failure(look),
                 "of the head has shape [1, 16], and the labels of the data ask for "
                 "[2, 16]; --ignore-mismatched-sizes true");
  look.ignore_mismatched_sizes = true;
  const auto fresh = PrepareRun(look);
  ASSERT_TRUE(fresh.ok()) << Message(fresh.status());
  EXPECT_EQ(models::LabelNames(fresh->model->config()),
            (std::vector<std::string>{"negative", "positive"}));
}

// Tables as GLUE's are published: the task's name finds columns and metrics.
TEST_F(LabelTasksTest, ColumnsAndMetricsOfGlue) {
  const auto rows = [&](const std::string& name, const std::string& header,
                        const std::string& row) {
    std::string text = header + "\n";
    for (int i = 0; i < 24; ++i) text += Concat(row, i % 3 == 0 ? "1" : "0", "\n");
    return Put(name, text);
  };
  struct Case {
    const char* task;
    std::string path;
    std::vector<std::string> metrics;
  };
  const std::string json = Put("rows.json", [] {
    std::string text = "[";
    for (int i = 0; i < 24; ++i) {
      text +=
          Concat(i == 0 ? "" : ",", R"({"idx": )", i,
                 R"(, "sentence1": "good film", "sentence2": "bad plot", "label": )", i % 2, "}");
    }
    return text + "]";
  }());
  const std::vector<std::string> ours = {"accuracy", "f1", "matthews"};
  const Case cases[] = {
      {"mrpc",
       rows("mrpc.tsv", "#1 ID\t#1 String\t#2 String\tQuality", "7\tgood\tbad\t"),
       {"accuracy", "f1"}},
      {"cola",
       rows("cola.tsv", "idx\tsentence\tlabel", "1\tgood film\t"),
       {"matthews_correlation"}},
      {"qnli", rows("qnli.tsv", "question\tsentence\tlabel", "good\tbad\t"), {"accuracy"}},
      {"stsb",
       rows("stsb.tsv", "sentence1\tsentence2\tscore", "good\tbad\t"),
       {"pearson", "spearmanr", "mse"}},
      {"mrpc", json, {"accuracy", "f1"}},
      {"", json, ours},
      {"", rows("two.csv", "a,b,label", "good,bad,"), ours},
      {"", rows("one.csv", "id,text,label", "3,good,"), ours},
      {"", rows("frame.csv", "Unnamed: 0,text,label", "3,good,"), ours},
      {"", rows("upper.CSV", "ID,text,label", "3,good,"), ours},
      {"", rows("arrow.tsv", "__index_level_0__\ttext\tlabel", "3\tgood\t"), ours}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.path);
    RunConfig config = ReviewRun();
    config.data = {c.path};
    if (*c.task != 0) config.options["glue_task"] = c.task;
    config.max_steps = 2;
    config.out = Path(std::string("out") + c.task + std::to_string(&c - cases));
    RunSetup setup;
    const TrainState state = Train(config, &setup);
    ASSERT_EQ(setup.task->name, "text_classification");
    std::vector<std::string> names;
    for (const auto& [name, value] : state.val_metrics->items()) names.push_back(name);
    EXPECT_EQ(names, c.metrics);
  }
  RunConfig config = ReviewRun();
  config.options["glue_task"] = "rte";
  ExpectContains(Failure(config), "glue_task rte needs columns sentence1 and sentence2; it has");
  config.options->clear();
  config.data = {rows("three.csv", "a,b,c,label", "x,y,z,")};
  ExpectContains(Failure(config), "which of the columns a, b, c are texts?");
  config.options["glue_task"] = "mrcp";
  ExpectContains(Failure(config), "mrpc");
}

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

// Dark pictures (label 0) and bright ones in IDX files, 8 by 8.
std::string IdxImages(uint32_t count) {
  std::string images =
      std::string("\0\0\x08\x03", 4) + BigEndian(count) + BigEndian(8) + BigEndian(8);
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t p = 0; p < 64; ++p) {
      images += static_cast<char>((i * 5 % 3 == 0 ? 150 : 20) + (i * 7 + p * 3) % 60);
    }
  }
  return images;
}

std::string IdxLabels(uint32_t count) {
  std::string labels = std::string("\0\0\x08\x01", 4) + BigEndian(count);
  for (uint32_t i = 0; i < count; ++i) labels += static_cast<char>(i * 5 % 3 == 0);
  return labels;
}

TEST_F(LabelTasksTest, PicturesOfTwoKinds) {
  for (const char* part : {"train", "t10k"}) {
    Put(std::string("idx/") + part + "-images-idx3-ubyte", IdxImages(64));
    Put(std::string("idx/") + part + "-labels-idx1-ubyte", IdxLabels(64));
  }
  RunConfig config = Config("vit-mini", Path("idx"));
  config.config_overrides = kSmallVit;
  config.lr = 3e-3;
  config.options["random_flip"] = true;
  config.options["random_crop"] = true;
  RunSetup setup;
  const TrainState state = Train(config, &setup);
  EXPECT_EQ(state.val_metrics->at("accuracy"), 1.0);
  ASSERT_EQ(setup.data.files.size(), 1u);
  EXPECT_EQ(setup.data.files[0].first, "preprocessor_config.json");
  config.tokenizer = "byte";
  ExpectContains(Failure(config), "has no text");
  config.tokenizer = "";
  config.neftune_noise_alpha = 5;
  ExpectContains(Failure(config), "neftune_noise_alpha");
}

TEST_F(LabelTasksTest, PicturesKeepTheOrderOfTheFileWhereNothingShuffles) {
  Put("idx/train-images-idx3-ubyte", IdxImages(8));
  Put("idx/train-labels-idx1-ubyte", IdxLabels(8));
  RunConfig config = Config("vit-mini", Path("idx"));
  config.config_overrides = kSmallVit;
  config.val_fraction = 0;
  config.max_steps = 1;
  RunSetup setup;
  Train(config, &setup);
  std::vector<data::Sample> every;
  for (int64_t i = 0; i < 8; ++i) every.push_back({.index = i});
  const auto batch = setup.data.train->MakeBatch(every);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->at(keys::kLabels).ToVector<int64_t>(),
            (std::vector<int64_t>{1, 0, 0, 1, 0, 0, 1, 0}));
}

// Transformers' Trainer tells ViT the rows of a step, and BERT those of a micro-batch.
TEST_F(LabelTasksTest, TheTrainersLossIsAMeanOfRowsWhereTheModelTakesTheirNumber) {
  Put("idx/train-images-idx3-ubyte", IdxImages(4));
  Put("idx/train-labels-idx1-ubyte", IdxLabels(4));
  const auto loss = [&](RunConfig config, const std::string& average) {
    config.batch_size = 3;
    config.gradient_accumulation_steps = 2;
    config.join_epochs = false;  // the second micro-batch has one row
    config.val_fraction = 0;
    config.max_steps = 1;
    config.loss_average = average;
    config.out = Path("run");
    config.overwrite = true;
    return Train(config).loss;
  };
  RunConfig vit = Config("vit-mini", Path("idx"));
  vit.config_overrides = kSmallVit;
  EXPECT_EQ(loss(vit, "trainer"), loss(vit, "targets"));
  EXPECT_NE(loss(vit, "trainer"), loss(vit, "micro_batches"));
  RunConfig smooth = vit;
  smooth.label_smoothing = 0.1;
  EXPECT_EQ(loss(smooth, "trainer"), loss(smooth, "micro_batches"));
  EXPECT_NE(loss(smooth, "trainer"), loss(smooth, "targets"));
  RunConfig bert = ReviewRun();
  bert.data = {Reviews("four.tsv", 4)};
  EXPECT_EQ(loss(bert, "trainer"), loss(bert, "micro_batches"));
  EXPECT_NE(loss(bert, "trainer"), loss(bert, "targets"));
}

TEST_F(LabelTasksTest, ClozeLearnsWhichWordsFillTheBlank) {
  std::string text = "sentence\tlabel\n";
  for (int i = 0; i < 120; ++i) {
    text += i * i % 7 < 3 ? "one two three\tpositive\n" : "five four one\tnegative\n";
  }
  RunConfig config = Config("glm-tiny", Put("reviews.tsv", text));
  config.tokenizer = std::string(kTokenizers) + "glm";
  config.config_overrides =
      "hidden_size=16,num_layers=1,num_attention_heads=2,max_sequence_length=64";
  config.options["cloze_pattern"] = "{text} is [MASK].";
  config.options["label_words"] = "positive=two,negative=four one";
  config.val_fraction = 0.25;
  RunSetup setup;
  const TrainState state = Train(config, &setup);
  EXPECT_EQ(setup.task->name, "cloze");
  EXPECT_EQ(state.val_metrics->at("accuracy"), 1.0);
  EXPECT_EQ(models::LabelNames(setup.model->config()),
            (std::vector<std::string>{"negative", "positive"}));
  config.options["label_words"] = "positive=two";
  ExpectContains(Failure(config), "label 'negative' has none");
  config.options["label_words"] = "good=two";
  ExpectContains(Failure(config), "'good=two' is not of the form");
  config.options->erase("label_words");
  config.seq_len = 8;
  ExpectContains(Failure(config), "seq_len leaves");
}

}  // namespace
}  // namespace tessera::train
