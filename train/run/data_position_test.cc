// SPDX-License-Identifier: Apache-2.0
// Where a run is in its data: every sample of an epoch is drawn once, whatever becomes of the
// batch, the accumulation and the ranks on the way; a short step is a step of its samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/thread_communicator.h"
#include "train/testing/small_runs.h"

namespace tessera::train {
namespace {

// The first samples of a dataset, which remembers what was drawn.
class Recorder : public data::Dataset {
 public:
  Recorder(std::shared_ptr<const data::Dataset> rows, int64_t size)
      : rows_(std::move(rows)), size_(size) {}
  int64_t size() const override { return size_; }
  StatusOr<data::Batch> MakeBatch(std::span<const data::Sample> samples) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const data::Sample& sample : samples) drawn_[sample.position] = sample.index;
    return rows_->MakeBatch(samples);
  }
  std::optional<int64_t> length_of(int64_t index) const override { return index * 7 % 11; }
  // By position in the line.
  std::map<int64_t, int64_t> drawn() const { return drawn_; }

 private:
  const std::shared_ptr<const data::Dataset> rows_;
  const int64_t size_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, int64_t> drawn_;
};

class DataPositionTest : public SmallRuns {
 protected:
  struct Shape {
    int64_t batch = 1, accumulation = 1;
    int ranks = 1;
  };
  RunConfig Usual(const std::string& out) const {
    RunConfig config = Config(out);
    config.max_steps.reset();
    config.log_interval = 1;
    config.eval_strategy = "no";
    config.deterministic = true;
    return config;
  }
  // What was drawn, by position; `samples` of the run's last state.
  static std::map<int64_t, int64_t> Run(RunConfig config, const Shape& shape, int64_t size,
                                        bool resume = false, int64_t stop_after = 0,
                                        TrainState* state = nullptr) {
    config.batch_size = shape.batch;
    config.gradient_accumulation_steps = shape.accumulation;
    std::map<int64_t, int64_t> drawn;
    std::mutex mutex;
    RunRanks(shape.ranks, [&](const std::shared_ptr<Communicator>& world) {
      const auto mesh = MakeMesh(config, world);
      EXPECT_TRUE(mesh.ok()) << Message(mesh.status());
      auto setup = PrepareRun(config, *mesh);
      EXPECT_TRUE(setup.ok()) << Message(setup.status());
      const auto recorder = std::make_shared<Recorder>(setup->data.train, size);
      setup->data.train = recorder;
      Trainer trainer(setup->config, *setup->model, setup->data, *mesh);
      StopAt stop(stop_after);
      trainer.AddCallback(&stop);
      const auto result = trainer.Train({.resume = resume, .output = nullptr});
      EXPECT_TRUE(result.ok()) << Message(result.status());
      const std::lock_guard<std::mutex> lock(mutex);
      drawn.merge(recorder->drawn());
      if (state != nullptr && result.ok()) *state = result->state;
    });
    return drawn;
  }
};

TEST_F(DataPositionTest, AnotherGlobalBatchContinuesWhereTheOneBeforeStopped) {
  constexpr int64_t kSize = 22;
  const Shape shapes[] = {{2, 1, 1}, {4, 1, 1}, {1, 1, 1}, {2, 2, 1}, {3, 1, 1},
                          {1, 1, 2}, {2, 1, 2}, {1, 3, 2}, {5, 1, 1}, {1, 5, 1}};
  int run = 0;
  for (const Shape& before : {shapes[0], shapes[3], shapes[6]}) {
    for (size_t which = 0; which < 2 * std::size(shapes); ++which) {
      const Shape& after = shapes[which / 2];
      RunConfig config = Usual(Concat("run", ++run));
      config.epochs = 2;
      config.join_epochs = which % 2 == 0;
      config.deterministic = false;  // which asks for powers of two
      SCOPED_TRACE(Concat(config.join_epochs, ' ', before.batch, 'x', before.accumulation, 'x',
                          before.ranks, " -> ", after.batch, 'x', after.accumulation, 'x',
                          after.ranks));
      TrainState state;
      const auto first = Run(config, before, kSize, false, /*stop_after=*/2, &state);
      const int64_t begin = 2 * before.batch * before.accumulation * before.ranks;
      EXPECT_EQ(state.samples, begin);
      const auto rest = Run(config, after, kSize, /*resume=*/true, 0, &state);
      EXPECT_EQ(rest.begin()->first, begin);
      EXPECT_EQ(std::prev(rest.end())->first, 2 * kSize - 1);
      EXPECT_EQ(state.samples, 2 * kSize);
      EXPECT_EQ(state.epoch, 2);
      // Both epochs have every sample once.
      std::map<int64_t, int64_t> line(first.begin(), first.lower_bound(begin));
      line.insert(rest.begin(), rest.end());
      ASSERT_EQ(std::ssize(line), 2 * kSize);
      for (const int64_t epoch : {0, 1}) {
        std::set<int64_t> samples;
        for (int64_t i = 0; i < kSize; ++i) samples.insert(line.at(epoch * kSize + i));
        EXPECT_EQ(std::ssize(samples), kSize) << epoch;
      }
    }
  }
}

// What is left of an epoch is cut into whole steps; sorted groups stay those of the first run.
TEST_F(DataPositionTest, WholeStepsAndGroupsOfLikeLengthsKeepTheirPlaceToo) {
  constexpr int64_t kSize = 22;
  for (const bool groups : {false, true}) {
    RunConfig config = Usual(groups ? "groups" : "whole");
    config.epochs = 1;
    config.drop_last = !groups;
    config.group_by_length = groups;
    config.shuffle = groups;
    const auto first = Run(config, {.batch = 4}, kSize, false, /*stop_after=*/2);
    TrainState state;
    const auto rest = Run(config, {.batch = 3}, kSize, /*resume=*/true, 0, &state);
    EXPECT_EQ(rest.begin()->first, 8);
    EXPECT_EQ(state.samples, groups ? 22 : 20);  // 8 + 4 * 3, and 2 that fill no step
    std::set<int64_t> samples;
    for (int64_t i = 0; i < state.samples; ++i) {
      samples.insert(i < 8 ? first.at(i) : rest.at(i));
    }
    EXPECT_EQ(std::ssize(samples), state.samples);
  }
}

TEST_F(DataPositionTest, RowsCountSamples) {
  const RunConfig config = Usual("run");
  Run(config, {.batch = 4}, 10);
  const auto rows = Rows(config);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["samples"], 4);
  EXPECT_EQ(rows[1]["samples"], 8);
  EXPECT_EQ(rows[2]["samples"], 10);
  RunConfig apart = Usual("apart");
  apart.join_epochs = false;
  apart.epochs = 2;
  Run(apart, {.batch = 4}, 10);
  std::vector<int64_t> samples;
  for (const auto& row : Rows(apart)) samples.push_back(row["samples"]);
  EXPECT_EQ(samples, (std::vector<int64_t>{4, 8, 10, 14, 18, 20}));
  // Of epochs that end with a step, drop_last drops the micro-batch that is not whole.
  RunConfig whole = Usual("whole");
  whole.join_epochs = false;
  whole.drop_last = true;
  whole.epochs = 2;
  Run(whole, {.batch = 3, .accumulation = 2}, 10);
  samples.clear();
  for (const auto& row : Rows(whole)) samples.push_back(row["samples"]);
  EXPECT_EQ(samples, (std::vector<int64_t>{6, 9, 15, 18}));
}

// Ranks and micro-batches that a short step leaves without samples add nothing, on every layout.
TEST_F(DataPositionTest, AnEpochOfFewSamplesIsOneStepOfThem) {
  struct Layout {
    const char* name;
    Shape shape;
    std::function<void(RunConfig&)> change;
  };
  const auto none = [](RunConfig&) {};
  const Layout layouts[] = {
      {"one", {2, 4, 1}, none},
      {"dp", {2, 2, 2}, none},
      {"zero2", {2, 1, 4}, [](RunConfig& c) { c.zero = 2; }},
      {"zero3", {2, 1, 4}, [](RunConfig& c) { c.zero = 3; }},
      {"pp", {2, 4, 2}, [](RunConfig& c) { c.pp = 2; }},
      {"dp_pp", {2, 2, 4}, [](RunConfig& c) { c.pp = 2; }},
  };
  for (const int64_t size : {1, 3, 5}) {
    RunConfig plain = Usual(Concat("plain", size));
    plain.epochs = 3;
    plain.dropout = 0;
    Run(plain, {.batch = size}, size);
    std::vector<nlohmann::json> first;
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(Concat(layout.name, ' ', size));
      RunConfig config = plain;
      config.out = Config(Concat(layout.name, size)).out;
      layout.change(config);
      TrainState state;
      const auto drawn = Run(config, layout.shape, size, false, 0, &state);
      EXPECT_EQ(std::ssize(drawn), 3 * size);
      EXPECT_EQ(state.step, 3);
      EXPECT_EQ(state.samples, 3 * size);
      const auto rows = Losses(config);
      const auto expected = Losses(plain);
      ASSERT_EQ(rows.size(), expected.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        for (const char* key : {"loss", "grad_norm"}) {
          EXPECT_NEAR(rows[i][key].get<double>(), expected[i][key].get<double>(), 1e-5) << key;
        }
      }
      if (first.empty()) first = rows;
      EXPECT_EQ(rows, first) << "the same bits";
    }
  }
}

TEST_F(DataPositionTest, OtherDataOfTheSameSizeAreSaid) {
  const auto warnings = [&](const std::function<void(const std::string&)>& change,
                            const std::string& name) {
    RunConfig config = Usual(name);
    config.data = {root_ + "/" + name + ".txt"};
    std::filesystem::copy_file(root_ + "/text.txt", config.data[0]);
    config.max_steps = 2;
    Train(config);
    config.max_steps = 3;
    change(config.data[0]);
    auto setup = PrepareRun(config);
    EXPECT_TRUE(setup.ok()) << Message(setup.status());
    std::FILE* file = std::tmpfile();
    Trainer trainer(setup->config, *setup->model, setup->data);
    EXPECT_TRUE(trainer.Train({.resume = true, .output = file}).ok());
    std::string text(static_cast<size_t>(std::ftell(file)), ' ');
    std::rewind(file);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
    std::fclose(file);
    return text;
  };
  const std::string said = "warning: the files of data are not those of the checkpoint's run";
  const auto other = [](const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out);
    file.seekp(1000);
    file << "song";
  };
  EXPECT_NE(warnings(other, "other").find(said), std::string::npos);
  const auto touched = [](const std::string& path) {
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now());
  };
  EXPECT_EQ(warnings(touched, "touched").find(said), std::string::npos);
}

}  // namespace
}  // namespace tessera::train
