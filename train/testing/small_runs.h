// SPDX-License-Identifier: Apache-2.0
// Runs of a small model on a small text: configurations, training, what was written.
//
//   class MyTest : public SmallRuns {};
//   TEST_F(MyTest, Learns) { const auto weights = Train(Config("run")); }
#ifndef TESSERA_TRAIN_TESTING_SMALL_RUNS_H_
#define TESSERA_TRAIN_TESTING_SMALL_RUNS_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "train/run/run_setup.h"
#include "train/trainer.h"

namespace tessera::train {

// A small text with structure, so that the loss falls.
inline std::string WriteText(const std::string& directory) {
  std::filesystem::create_directories(directory);
  const std::string path = directory + "/text.txt";
  std::ofstream out(path);
  for (int i = 0; i < 600; ++i)
    out << "line " << i % 17 << " of the song, sung " << i % 5 << " times\n";
  return path;
}

class SmallRuns : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/trainer_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    WriteText(root_);
  }

  RunConfig Config(const std::string& out) const {
    RunConfig config;
    config.model = "gpt-tiny";
    config.data = {root_ + "/text.txt"};
    config.out = root_ + "/" + out;
    config.seq_len = 24;
    config.batch_size = 4;
    config.max_steps = 8;
    config.lr = 1e-3;
    config.dropout = 0.1;
    config.log_interval = 3;
    config.threads = 2;
    return config;
  }

  // Trains and returns the final weights.
  static std::map<std::string, std::vector<float>> Train(const RunConfig& config,
                                                         bool resume = false,
                                                         TrainerCallback* callback = nullptr,
                                                         TrainerParts parts = {}) {
    auto setup = PrepareRun(config);
    EXPECT_TRUE(setup.ok()) << Message(setup.status());
    if (!setup.ok()) return {};
    Trainer trainer(setup->config, *setup->model, setup->data, {}, std::move(parts));
    if (callback != nullptr) trainer.AddCallback(callback);
    const auto result = trainer.Train({.resume = resume, .output = nullptr});
    EXPECT_TRUE(result.ok()) << Message(result.status());
    std::map<std::string, std::vector<float>> weights;
    for (const auto& [name, tensor] : setup->model->StateDict()) {
      weights[name] = tensor.ToVector<float>();
    }
    return weights;
  }

  static std::vector<nlohmann::json> Rows(const RunConfig& config) {
    std::ifstream in(config.out + "/metrics.jsonl");
    std::vector<nlohmann::json> rows;
    for (std::string line; std::getline(in, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }

  // Rows without what depends on the clock or the allocator's history.
  static std::vector<nlohmann::json> Losses(const RunConfig& config) {
    std::vector<nlohmann::json> rows = Rows(config);
    for (auto& row : rows) {
      row.erase("tokens_per_second");
      row.erase("peak_bytes");
    }
    return rows;
  }

  std::string root_;
};

struct StopAt : TrainerCallback {
  explicit StopAt(int64_t step) : step(step) {}
  void OnStepEnd(const TrainState& state, TrainControl& control) override {
    if (state.step == step) control.Stop("the test");
  }
  int64_t step;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TESTING_SMALL_RUNS_H_
