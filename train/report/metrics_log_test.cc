// SPDX-License-Identifier: Apache-2.0
#include "train/report/metrics_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "nlohmann/json.hpp"
#include "train/testing/event_reader.h"

namespace tessera::train {
namespace {

using nlohmann::ordered_json;

class MetricsLogTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/metrics_log_test";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  MetricsLog Open(int64_t last_step, const std::vector<std::string>& report_to) {
    auto log = MetricsLog::Open(folder_, last_step, report_to);
    EXPECT_TRUE(log.ok()) << Message(log.status());
    return *std::move(log);
  }
  // Rows of the steps from `first` to `last`, with an evaluation behind every second.
  static void AppendSteps(int64_t first, int64_t last, MetricsLog* log) {
    for (int64_t step = first; step <= last; ++step) {
      const double loss = 1.0 / static_cast<double>(step);
      ASSERT_TRUE(log->Append({{"step", step}, {"loss", loss}, {"lr", 0.5}}).ok());
      if (step % 2 != 0) continue;
      ASSERT_TRUE(log->Append({{"step", step}, {"val_loss", 2 * loss}}).ok());
    }
  }
  std::string Read(const std::string& name) const { return *ReadFile(folder_ + "/" + name); }
  std::string EventFileName() const {
    const auto names = *ListDirectory(folder_ + "/tensorboard");
    EXPECT_EQ(names.size(), 1u);
    return "tensorboard/" + names[0];
  }
  void Damage(const std::string& name) const {
    std::ofstream(folder_ + "/" + name, std::ios::app) << "{\"step\":1,\"lo";
  }

  std::string folder_;
};

// The state that a killed process leaves: rows beyond the checkpoint, and one that is unfinished.
TEST_F(MetricsLogTest, ARunThatGoesOnHasEveryRowOnce) {
  {
    MetricsLog log = Open(0, {"tensorboard", "csv"});
    AppendSteps(1, 5, &log);
  }
  for (const std::string& name :
       {std::string("metrics.jsonl"), std::string("metrics.csv"), EventFileName()}) {
    Damage(name);
  }
  MetricsLog log = Open(3, {"tensorboard", "csv"});
  AppendSteps(4, 6, &log);
  EXPECT_EQ(Read("metrics.csv"),
            "step,loss,lr,val_loss\n"
            "1,1.0,0.5,\n2,0.5,0.5,\n2,,,1.0\n3,0.3333333333333333,0.5,\n"
            "4,0.25,0.5,\n4,,,0.5\n5,0.2,0.5,\n6,0.16666666666666666,0.5,\n"
            "6,,,0.3333333333333333\n");
  std::vector<std::string> rows;
  for (const ScalarEvent& event : ReadEvents(Read(EventFileName()))) {
    for (const auto& [tag, value] : event.scalars) {
      rows.push_back(Concat(event.step, " ", tag));
      if (tag != "train/loss") continue;
      EXPECT_EQ(value, 1.0f / static_cast<float>(event.step));
    }
  }
  EXPECT_EQ(rows, (std::vector<std::string>{
                      "1 train/loss", "1 train/lr", "2 train/loss", "2 train/lr", "2 eval/loss",
                      "3 train/loss", "3 train/lr", "4 train/loss", "4 train/lr", "4 eval/loss",
                      "5 train/loss", "5 train/lr", "6 train/loss", "6 train/lr", "6 eval/loss"}));
}

// Also where the run before had not asked for it.
TEST_F(MetricsLogTest, OtherFormsHaveTheRowsFromTheBeginning) {
  {
    MetricsLog log = Open(0, {});
    AppendSteps(1, 2, &log);
    EXPECT_EQ(*ListDirectory(folder_), std::vector<std::string>{"metrics.jsonl"});
  }
  const MetricsLog log = Open(2, {"csv", "csv"});
  EXPECT_EQ(Read("metrics.csv"), "step,loss,lr,val_loss\n1,1.0,0.5,\n2,0.5,0.5,\n2,,,1.0\n");
}

TEST_F(MetricsLogTest, CellsHoldWhateverARowHas) {
  MetricsLog log = Open(0, {"csv"});
  ASSERT_TRUE(log.Append({{"step", 1}, {"loss", NAN}, {"a,b", "x\n\"y\""}}).ok());
  ASSERT_TRUE(log.Append({{"mine", true}, {"list", {1, 2}}}).ok());
  const std::string expected =
      "step,loss,\"a,b\",mine,list\n1,nan,\"x\\n\\\"\"y\\\"\"\",,\n,,,true,\"[1,2]\"\n";
  EXPECT_EQ(Read("metrics.csv"), expected);
}

TEST_F(MetricsLogTest, RemoveLeavesNothingOfARun) {
  {
    MetricsLog log = Open(0, {"csv", "tensorboard"});
    AppendSteps(1, 2, &log);
  }
  ASSERT_TRUE(MetricsLog::Remove(folder_).ok());
  EXPECT_EQ(*ListDirectory(folder_), std::vector<std::string>{"tensorboard"});
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/tensorboard"));
}

TEST_F(MetricsLogTest, RefusesAFormThatIsNotHere) {
  const auto log = MetricsLog::Open(folder_, 0, {"wandb"});
  ASSERT_FALSE(log.ok());
  EXPECT_NE(Message(log.status()).find("wandb"), std::string::npos);
}

}  // namespace
}  // namespace tessera::train
