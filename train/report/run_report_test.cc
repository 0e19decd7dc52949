// SPDX-License-Identifier: Apache-2.0
#include "train/report/run_report.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

class RunReportTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/run_report";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  static std::unique_ptr<RunReport> Open(RunReportOptions options) {
    const RunLog silent(nullptr, LogLevel::kError);
    auto report = RunReport::Open(std::move(options), silent);
    EXPECT_TRUE(report.ok()) << Message(report.status());
    return *std::move(report);
  }
  std::string Rows() const { return *ReadFile(folder_ + "/metrics.jsonl"); }

  std::string folder_;
};

TrainState After(int64_t step, double loss, int64_t tokens = 0, double seconds = 0) {
  TrainState state;
  state.step = step;
  state.loss = loss;
  state.tokens = tokens;
  state.seconds = seconds;
  state.lr = 0.5;
  state.grad_norm = 2;
  return state;
}

TrainState Evaluated2() {
  TrainState state = After(2, 100);
  state.val_loss = 9;
  return state;
}

TEST_F(RunReportTest, RowsAreMeansSinceTheRowBefore) {
  // One that continues after a step of loss 3.
  const auto report = Open({.folder = folder_, .total_steps = 9, .sums = {.loss = 3, .steps = 1}});
  report->AddStep(After(2, 1, 100, 0.25));
  EXPECT_EQ(report->sums().loss, 4);
  EXPECT_EQ(report->sums().steps, 2);
  ASSERT_TRUE(report->WriteSteps(After(2, 1), {{"peak_bytes", 7}}).ok());
  EXPECT_EQ(report->sums().steps, 0);
  report->AddStep(After(3, 8, 100, 0.5));
  ASSERT_TRUE(report->WriteSteps(After(3, 8), {}).ok());
  TrainState evaluated = After(3, 8);
  evaluated.val_loss = 0.5;
  evaluated.val_metrics["accuracy"] = 0.75;
  ASSERT_TRUE(report->WriteEvaluation(evaluated, {"a sample"}).ok());
  EXPECT_EQ(Rows(),
            "{\"step\":2,\"samples\":0,\"loss\":2.0,\"lr\":0.5,\"grad_norm\":2.0,\"tokens_per_"
            "second\":400.0,"
            "\"peak_bytes\":7}\n"
            "{\"step\":3,\"samples\":0,\"loss\":8.0,\"lr\":0.5,\"grad_norm\":2.0,\"tokens_per_"
            "second\":200.0}\n"
            "{\"step\":3,\"val_loss\":0.5,\"val_accuracy\":0.75}\n");
}

TEST_F(RunReportTest, AProgramMayWriteRowsItself) {
  std::vector<nlohmann::ordered_json> rows;
  const auto report =
      Open({.folder = folder_,
            .total_steps = 9,
            .write = [&](const nlohmann::ordered_json& row, MetricsLog& file) -> Status {
              rows.push_back(row);
              return row.contains("loss") ? file.Append({{"mine", row["step"]}}) : OkStatus();
            }});
  report->AddStep(After(1, 1, 1, 1));
  ASSERT_TRUE(report->WriteSteps(After(1, 1), {}).ok());
  TrainState evaluated = After(1, 1);
  evaluated.val_loss = 0.5;
  ASSERT_TRUE(report->WriteEvaluation(evaluated, {}).ok());
  EXPECT_EQ(rows.size(), 2u);
  EXPECT_EQ(Rows(), "{\"mine\":1}\n");
}

TEST_F(RunReportTest, LossScalesAreInRowsAndStepsWithoutTargetsInNone) {
  const auto report = Open({.folder = folder_, .total_steps = 9});
  TrainState state = After(1, 2, 100, 0.25);
  state.loss_scale = 65536;
  report->AddStep(state);
  TrainState nothing = After(2, 0, 100, 0.25);
  nothing.has_targets = false;
  report->AddStep(nothing);
  EXPECT_EQ(report->sums().steps, 1);
  state.step = 2;
  state.samples = 16;
  state.skipped_steps = 3;
  ASSERT_TRUE(report->WriteSteps(state, {}).ok());
  EXPECT_EQ(Rows(),
            "{\"step\":2,\"samples\":16,\"loss\":2.0,\"lr\":0.5,\"grad_norm\":2.0,"
            "\"tokens_per_second\":400.0,\"loss_scale\":65536.0,\"skipped_steps\":3}\n");
}

// What a checkpoint says is due comes again: the rows of it that a killed run wrote are dropped.
TEST_F(RunReportTest, RowsThatComeAgainAreDropped) {
  {
    const auto report = Open({.folder = folder_, .total_steps = 9});
    TrainState state = After(2, 1, 100, 0.25);
    report->AddStep(state);
    ASSERT_TRUE(report->WriteSteps(state, {}).ok());
    state.val_loss = 0.5;
    ASSERT_TRUE(report->WriteEvaluation(state, {"a sample"}).ok());
    ASSERT_TRUE(report->WriteEpoch(state, {}).ok());
  }
  const std::string all = Rows();
  Open({.folder = folder_, .step = 2, .total_steps = 9});
  EXPECT_EQ(Rows(), all);
  Open({.folder = folder_,
        .step = 2,
        .total_steps = 9,
        .evaluation_due = true,
        .epoch_end_due = true});
  EXPECT_EQ(Rows(), all.substr(0, all.find('\n') + 1));
  EXPECT_EQ(*ReadFile(folder_ + "/epochs.jsonl"), "");
  EXPECT_EQ(*ReadFile(folder_ + "/samples.jsonl"), "");
}

// An epoch that a resume interrupts has one row, of all its steps.
TEST_F(RunReportTest, AnEpochIsARowWhateverInterruptsIt) {
  nlohmann::json state;
  {
    const auto report = Open({.folder = folder_, .total_steps = 9});
    report->AddStep(After(1, 1, 100, 0.5));
    TrainState evaluated = After(1, 1);
    evaluated.val_loss = 0.25;
    evaluated.val_metrics["f1"] = 0.75;
    ASSERT_TRUE(report->WriteEvaluation(evaluated, {"a sample", "another"}).ok());
    state = nlohmann::json::parse(report->epoch().ToJson().dump());
    report->AddStep(After(2, 100, 1, 1));  // lost
    ASSERT_TRUE(report->WriteEvaluation(Evaluated2(), {"lost"}).ok());
  }
  const auto report =
      Open({.folder = folder_, .step = 1, .total_steps = 9, .epoch = EpochSums::Of(state)});
  report->AddStep(After(2, 4, 300, 1.5));
  TrainState end = After(2, 4);
  end.epoch = 1.25;
  ASSERT_TRUE(report->WriteEpoch(end, {{"peak_bytes", 7}}).ok());
  EXPECT_EQ(*ReadFile(folder_ + "/epochs.jsonl"),
            "{\"epoch\":1,\"step\":2,\"loss\":2.5,\"tokens_per_second\":200.0,\"seconds\":2.0,"
            "\"peak_bytes\":7,\"val_loss\":0.25,\"val_f1\":0.75}\n");
  EXPECT_EQ(*ReadFile(folder_ + "/samples.jsonl"),
            "{\"step\":1,\"samples\":[\"a sample\",\"another\"]}\n");
  EXPECT_EQ(report->epoch().steps.steps, 0);
  EXPECT_EQ(EpochSums::Of("damaged").steps.steps, 0);
}

TEST_F(RunReportTest, OtherRanksAddUpAndWriteNothing) {
  const auto report = Open({.prints = false, .folder = folder_, .total_steps = 9});
  report->AddStep(After(1, 5, 10, 1));
  EXPECT_EQ(report->sums().loss, 5);
  ASSERT_TRUE(report->WriteSteps(After(1, 5), {}).ok());
  EXPECT_EQ(report->sums().loss, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace tessera::train
