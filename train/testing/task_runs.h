// SPDX-License-Identifier: Apache-2.0
// Runs of every task on a handful of samples: files, configurations, training.
//
//   class MyTest : public TaskRuns {};
//   TEST_F(MyTest, Learns) { EXPECT_LT(*Train(ReviewRun()).val_loss, 0.2); }
#ifndef TESSERA_TRAIN_TESTING_TASK_RUNS_H_
#define TESSERA_TRAIN_TESTING_TASK_RUNS_H_

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "train/run/run_setup.h"
#include "train/trainer.h"

namespace tessera::train {

inline constexpr char kSmallBert[] =
    "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32,"
    "max_position_embeddings=32";
inline constexpr char kSmallT5[] =
    "d_model=16,d_kv=8,d_ff=32,num_layers=1,num_decoder_layers=1,num_heads=2";
inline constexpr char kTokenizers[] = "data/tokenizer/testdata/sentence_piece/";

class TaskRuns : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/tasks_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    Put("words/vocab.txt",
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\nfilm\nplot\nthe\nwas\nand\n.\n##s\n");
  }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string Put(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
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

inline void ExpectContains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TESTING_TASK_RUNS_H_
