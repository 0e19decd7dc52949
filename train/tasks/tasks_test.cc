// Every task, from files on the disk to a trained model: small models learn what their data say,
// evaluations measure it alike on any number of ranks, and what does not fit is named.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/file.h"
#include "core/thread_communicator.h"
#include "dist/mesh/mesh.h"
#include "models/classification.h"
#include "models/hub/save_model.h"
#include "train/run_setup.h"
#include "train/trainer.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

constexpr char kSmallBert[] =
    "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32,"
    "max_position_embeddings=32";
constexpr char kSmallT5[] =
    "d_model=16,d_kv=8,d_ff=32,num_layers=1,num_decoder_layers=1,num_heads=2";
constexpr char kTokenizers[] = "data/tokenizer/testdata/sentence_piece/";

class TasksTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/tasks_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(root_);
    Put("words/vocab.txt",
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\nfilm\nplot\nthe\nwas\nand\n.\n##s\n");
  }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string Put(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }
  RunConfig Config(const std::string& model, const std::string& data) const {
    RunConfig config;
    config.model = model;
    config.data = {data};
    config.out = Path("run");
    config.threads = 2;
    config.batch_size = 8;
    config.max_steps = 60;
    config.lr = 1e-2;
    config.weight_decay = 0;
    config.dropout = 0;
    return config;
  }
  // The state after training.
  static TrainState Train(const RunConfig& config, RunSetup* kept = nullptr) {
    auto setup = PrepareRun(config);
    EXPECT_TRUE(setup.ok()) << Message(setup.status());
    if (!setup.ok()) return {};
    EXPECT_EQ(setup->warnings, std::vector<std::string>());
    Trainer trainer(setup->config, *setup->model, setup->data);
    const auto result = trainer.Train({.output = nullptr});
    EXPECT_TRUE(result.ok()) << Message(result.status());
    const TrainState state = trainer.state();
    if (kept != nullptr) *kept = *std::move(setup);
    return state;
  }
  static std::string Failure(const RunConfig& config) {
    const auto setup = PrepareRun(config);
    EXPECT_FALSE(setup.ok());
    return setup.ok() ? "" : Message(setup.status());
  }
  // Good films and bad ones: one word decides.
  std::string Reviews(const std::string& name, int rows) const {
    std::string text = "sentence\tlabel\n";
    for (int i = 0; i < rows; ++i) {
      const bool good = i * i % 7 < 3;
      text += Concat(i % 3 == 0 ? "the film was " : "the plots and the film was ",
                     good ? "good" : "bad", i % 2 == 0 ? " ." : "", "\t",
                     good ? "positive" : "negative", "\n");
    }
    return Put(name, text);
  }
  RunConfig ReviewRun() const {
    RunConfig config = Config("bert-tiny", Reviews("reviews.tsv", 120));
    config.tokenizer = Path("words");
    config.config_overrides = kSmallBert;
    config.val_fraction = 0.25;
    return config;
  }

  std::string root_;
};

void ExpectContains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(TasksTest, TextClassificationLearnsAndSavesItsLabels) {
  RunSetup setup;
  const TrainState state = Train(ReviewRun(), &setup);
  EXPECT_EQ(setup.task->name, "text_classification");
  EXPECT_EQ(state.val_metrics.at("accuracy"), 1.0);
  EXPECT_EQ(state.val_metrics.at("f1"), 1.0);
  EXPECT_LT(*state.val_loss, 0.2);
  EXPECT_EQ(models::LabelNames(setup.model->config()),
            (std::vector<std::string>{"negative", "positive"}));
  // The folder is evaluated, and fine-tuned on other labels with a new head.
  ASSERT_TRUE(models::SaveModel(*setup.model, Path("model"), setup.tokenizer.get()).ok());
  RunConfig look = Config(Path("model"), Reviews("more.tsv", 31));
  const auto found = PrepareEvaluation(look, {}, Path("look"));
  ASSERT_TRUE(found.ok()) << Message(found.status());
  EXPECT_EQ(found->data.validation->size(), 31);
  Trainer trainer(found->config, *found->model, found->data);
  EXPECT_EQ(trainer.Evaluate(*found->data.validation, 0)->metrics.at("accuracy"), 1.0);
  look.data = {Put("stars.tsv", "sentence\tlabel\nthe film\tthree\nthe plot\tone\nbad\ttwo\n")};
  ExpectContains(Message(PrepareEvaluation(look, {}, Path("look")).status()),
                 "labels that the model does not know; it has: negative, positive");
  look.val_fraction = 0;
  look.out = Path("stars");
  const auto fresh = PrepareRun(look);
  ASSERT_TRUE(fresh.ok()) << Message(fresh.status());
  ASSERT_EQ(fresh->warnings.size(), 1u);
  ExpectContains(fresh->warnings[0], "classifier");
  EXPECT_EQ(models::LabelNames(fresh->model->config()).size(), 3u);
}

TEST_F(TasksTest, MetricsAreTheSameOnEveryNumberOfRanks) {
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
TEST_F(TasksTest, ClassWeightsMakeAWeightedMean) {
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
  config.options.erase("class_weights");
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

TEST_F(TasksTest, NumbersAndSeveralAnswers) {
  std::string text = "sentence\tlabel\n";
  for (int i = 0; i < 80; ++i) text += i % 3 == 0 ? "good film\t2.5\n" : "bad film\t-1.5\n";
  RunConfig config = ReviewRun();
  config.data = {Put("scores.tsv", text)};
  config.max_steps = 200;
  TrainState state = Train(config);
  EXPECT_GT(state.val_metrics.at("pearson").get<double>(), 0.95);
  EXPECT_LT(state.val_metrics.at("mse").get<double>(), 0.3);
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
  EXPECT_EQ(state.val_metrics.at("accuracy"), 1.0);
  EXPECT_EQ(setup.model->config().at("problem_type"), "multi_label_classification");
}

TEST_F(TasksTest, MaskedLanguageModelling) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the film was good and the plot was bad . ";
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
    EXPECT_LT(*state.val_loss, 0.7) << "of 14 words: 2.6 at first";
  }
  config.tokenizer = "byte";
  ExpectContains(Failure(config), "the tokenizer has no mask token");
}

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

TEST_F(TasksTest, PicturesOfTwoKinds) {
  for (const char* part : {"train", "t10k"}) {
    const uint32_t count = 64;
    std::string images =
        std::string("\0\0\x08\x03", 4) + BigEndian(count) + BigEndian(8) + BigEndian(8);
    std::string labels = std::string("\0\0\x08\x01", 4) + BigEndian(count);
    for (uint32_t i = 0; i < count; ++i) {
      const bool bright = i * 5 % 3 == 0;
      for (uint32_t p = 0; p < 64; ++p) {
        images += static_cast<char>((bright ? 150 : 20) + (i * 7 + p * 3) % 60);
      }
      labels += static_cast<char>(bright);
    }
    Put(std::string("idx/") + part + "-images-idx3-ubyte", images);
    Put(std::string("idx/") + part + "-labels-idx1-ubyte", labels);
  }
  RunConfig config = Config("vit-mini", Path("idx"));
  config.config_overrides =
      "image_size=8,hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32";
  config.lr = 3e-3;
  config.options["random_flip"] = true;
  config.options["random_crop"] = true;
  RunSetup setup;
  const TrainState state = Train(config, &setup);
  EXPECT_EQ(state.val_metrics.at("accuracy"), 1.0);
  ASSERT_EQ(setup.data.files.size(), 1u);
  EXPECT_EQ(setup.data.files[0].first, "preprocessor_config.json");
  config.tokenizer = "byte";
  ExpectContains(Failure(config), "has no text");
  config.tokenizer = "";
  config.neftune_noise_alpha = 5;
  ExpectContains(Failure(config), "neftune_noise_alpha");
}

TEST_F(TasksTest, SequenceToSequenceWithGeneration) {
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
  EXPECT_GT(state.val_metrics.at("bleu").get<double>(), 99.0) << *state.val_loss;
  const std::vector<std::string> lines = setup.data.objective.metrics->Samples(*setup.model);
  ASSERT_EQ(lines.size(), 9u);
  ExpectContains(lines[1], "written:");
  // Two tensor-parallel ranks write together what one process writes.
  RunConfig shared = config;
  shared.tp = 2;
  shared.max_steps = 3;
  shared.out = Path("two_ranks");
  RunConfig single = config;
  single.max_steps = 3;
  single.out = Path("one_rank");
  const TrainState alone = Train(single);
  RunRanks(2, [&](const Group& world) {
    const dist::Mesh mesh(world, {.tp = 2});
    auto both = PrepareRun(shared, mesh);
    if (!both.ok()) throw std::runtime_error(Message(both.status()));
    Trainer trainer(both->config, *both->model, both->data, mesh);
    const auto result = trainer.Train({.output = nullptr});
    if (!result.ok()) throw std::runtime_error(Message(result.status()));
    EXPECT_NEAR(*trainer.state().val_loss, *alone.val_loss, 1e-5);
    EXPECT_EQ(trainer.state().val_metrics, alone.val_metrics);
  });
  shared.sequence_parallel = true;
  shared.out = Path("in_sequence");
  RunRanks(2, [&](const Group& world) {
    const auto refused = PrepareRun(shared, dist::Mesh(world, {.tp = 2}));
    ExpectContains(Message(refused.status()), "predict_with_generate writes token by token");
  });
  config.options["val_target_data"] = config.options["target_data"];
  config.val_data = Put("short.txt", "yes\n");
  config.out = Path("uneven");
  ExpectContains(Failure(config), "short.txt");
}

TEST_F(TasksTest, SpanCorruptionBlankInfillingAndInstructions) {
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
      void OnEvaluate(TrainState& state) override { values.push_back(*state.val_loss); }
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

TEST_F(TasksTest, ClozeLearnsWhichWordsFillTheBlank) {
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
  EXPECT_EQ(state.val_metrics.at("accuracy"), 1.0);
  EXPECT_EQ(models::LabelNames(setup.model->config()),
            (std::vector<std::string>{"negative", "positive"}));
  config.options["label_words"] = "positive=two";
  ExpectContains(Failure(config), "label 'negative' has none");
  config.options["label_words"] = "good=two";
  ExpectContains(Failure(config), "'good=two' is not of the form");
  config.options.erase("label_words");
  config.seq_len = 8;
  ExpectContains(Failure(config), "seq_len leaves");
}

TEST_F(TasksTest, ARunThatWasStoppedGoesOnWithTheSameChoices) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the film was good and the plot was bad . ";
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
    void OnStep(TrainState& state) override { state.should_stop = state.step == 7; }
  } stop;
  auto first = PrepareRun(config);
  Trainer trainer(first->config, *first->model, first->data);
  trainer.AddCallback(&stop);
  ASSERT_EQ(trainer.Train({.output = nullptr})->state.step, 7);
  auto second = PrepareRun(config);
  Trainer rest(second->config, *second->model, second->data);
  ASSERT_TRUE(rest.Train({.resume = true, .output = nullptr}).ok());
  EXPECT_EQ(rest.state().loss, whole.loss);
  EXPECT_EQ(*rest.state().val_loss, *whole.val_loss);
}

TEST_F(TasksTest, WhatDoesNotFitIsNamed) {
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
  config.options.erase("noise_density");
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
  config.options.erase("label_columns");
  config.tokenizer = std::string(kTokenizers) + "t5";
  ExpectContains(Failure(config), "the tokenizer has no classification token");
  config.tokenizer = Path("words");
  config.val_data = Put("odd.tsv", "sentence\tlabel\nthe film\tneutral\n");
  ExpectContains(Failure(config), "odd.tsv:2: unknown label 'neutral'");
}

}  // namespace
}  // namespace tessera::train
