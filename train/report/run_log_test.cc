// SPDX-License-Identifier: Apache-2.0
#include "train/report/run_log.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "core/thread_communicator.h"
#include "dist/checkpoint/checkpoint.h"
#include "train/testing/small_runs.h"

namespace tessera::train {
namespace {

std::string Read(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// What ranks on these hosts say at every level, one string each: "iw" is info and warning.
std::vector<std::string> Said(const ReportConfig& config, const std::vector<std::string>& hosts) {
  std::vector<std::string> said(hosts.size());
  std::mutex mutex;
  RunRanks(static_cast<int>(hosts.size()), [&](const std::shared_ptr<Communicator>& world) {
    const auto rank = static_cast<size_t>(world->rank());
    const std::string path = Concat(testing::TempDir(), "/log_", rank);
    std::FILE* file = std::fopen(path.c_str(), "w");
    const RunLog log = OpenRunLog(config, dist::Mesh(world, {}), file, hosts[rank]);
    log.Debug("d");
    log.Info("i");
    log.Warning("w");
    log.OwnWarning("o");
    std::fclose(file);
    const std::lock_guard<std::mutex> lock(mutex);
    said[rank] = Read(path);
  });
  return said;
}

ReportConfig Levels(const std::string& main, const std::string& replica) {
  ReportConfig config;
  config.log_level = main;
  config.log_level_replica = replica;
  return config;
}

TEST(RunLogTest, TheMainRankSpeaksAndReplicasWarnOfTheirOwn) {
  EXPECT_EQ(Said({}, {"a", "a"}),
            (std::vector<std::string>{"i\nwarning: w\nwarning: o\n",
                                      "[rank 1 (dp 1, pp 0, tp 0)] warning: o\n"}));
}

TEST(RunLogTest, LevelsSilence) {
  EXPECT_EQ(Said(Levels("warning", "error"), {"a", "a"}),
            (std::vector<std::string>{"warning: w\nwarning: o\n", ""}));
  EXPECT_EQ(Said(Levels("error", "error"), {"a"}), (std::vector<std::string>{""}));
  EXPECT_EQ(Said(Levels("debug", "warning"), {"a"}),
            (std::vector<std::string>{"d\ni\nwarning: w\nwarning: o\n"}));
}

TEST(RunLogTest, OneRankOfEachHostSpeaks) {
  const std::vector<std::string> hosts = {"a", "a", "b", "b", "c"};
  ReportConfig config = Levels("info", "error");
  const auto speaks = [&] {
    std::string ranks;
    for (const std::string& text : Said(config, hosts)) {
      ranks += text.find("i\n") != std::string::npos ? '+' : '-';
    }
    return ranks;
  };
  EXPECT_EQ(speaks(), "+----");
  config.log_on_each_node = true;
  EXPECT_EQ(speaks(), "+-+-+");
}

TEST(RunLogTest, WarningsOfSeveralRanksAreSaidOnce) {
  using Lines = std::vector<std::string>;
  const std::vector<Lines> warnings = {{"all", "0"}, {"all", "1 and 2", "1"}, {"1 and 2", "2\n"}};
  std::vector<Lines> said(3);
  RunRanks(3, [&](const std::shared_ptr<Communicator>& world) {
    const auto rank = static_cast<size_t>(world->rank());
    said[rank] = WarningsToSay(warnings[rank], dist::Mesh(world, {}));
  });
  EXPECT_EQ(said, (std::vector<Lines>{{"all", "0"}, {"1 and 2", "1"}, {"2\n"}}));
}

class LogRunsTest : public SmallRuns {
 protected:
  std::string Printed(const RunConfig& config) {
    const std::string path = root_ + "/output";
    std::FILE* file = std::fopen(path.c_str(), "w");
    auto setup = PrepareRun(config);
    EXPECT_TRUE(setup.ok()) << Message(setup.status());
    Trainer trainer(setup->config, *setup->model, setup->data);
    EXPECT_TRUE(trainer.Train({.output = file}).ok());
    std::fclose(file);
    return Read(path);
  }
  std::vector<int64_t> Checkpoints(const RunConfig& config) const {
    return dist::ListCheckpoints(config.out);
  }
  // The steps of the rows that have `key`.
  static std::vector<int64_t> StepsWith(const RunConfig& config, const std::string& key) {
    std::vector<int64_t> steps;
    for (const auto& row : Rows(config)) {
      if (row.contains(key)) steps.push_back(row["step"]);
    }
    return steps;
  }
};

TEST_F(LogRunsTest, AWarningLevelPrintsNoProgress) {
  RunConfig config = Config("loud");
  EXPECT_NE(Printed(config).find("step 8/8"), std::string::npos);
  config = Config("quiet");
  config.log_level = "warning";
  EXPECT_EQ(Printed(config), "");
}

using Steps = std::vector<int64_t>;

TEST_F(LogRunsTest, StrategiesByEpoch) {
  RunConfig config = Config("epochs");
  config.max_steps.reset();
  config.epochs = 3;
  config.batch_size = 64;
  config.num_checkpoints = 10;
  config.log_strategy = config.eval_strategy = config.save_strategy = "epoch";
  Printed(config);
  const Steps saved = Checkpoints(config);
  ASSERT_EQ(saved.size(), 3u);
  EXPECT_EQ(StepsWith(config, "val_loss"), saved);
  EXPECT_EQ(StepsWith(config, "lr"), saved);
  // The last step of each pass over the data, and none is twice as long as another.
  EXPECT_EQ(saved[2], saved.back());
  EXPECT_LE(std::abs((saved[1] - saved[0]) - saved[0]), 1);
}

TEST_F(LogRunsTest, StrategyNo) {
  RunConfig config = Config("none");
  config.log_strategy = config.eval_strategy = config.save_strategy = "no";
  config.save_interval = config.eval_interval = 2;
  Printed(config);
  EXPECT_EQ(Checkpoints(config), Steps());
  EXPECT_EQ(StepsWith(config, "val_loss"), Steps());
  EXPECT_EQ(StepsWith(config, "lr"), Steps({8}));
}

TEST_F(LogRunsTest, ADataSeedChangesTheOrderAlone) {
  RunConfig config = Config("one");
  config.dropout = 0;
  Printed(config);
  RunConfig other = Config("other");
  other.dropout = 0;
  other.data_seed = 5;
  Printed(other);
  EXPECT_NE(Losses(config), Losses(other));
  RunConfig same = Config("same");
  same.dropout = 0;
  same.data_seed = same.seed;
  Printed(same);
  EXPECT_EQ(Losses(config), Losses(same));
}

}  // namespace
}  // namespace tessera::train
