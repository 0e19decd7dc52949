#include "train/run_report.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/file.h"

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

TrainState After(int64_t step, double loss) {
  TrainState state;
  state.step = step;
  state.loss = loss;
  state.lr = 0.5;
  state.grad_norm = 2;
  return state;
}

TEST_F(RunReportTest, RowsAreMeansSinceTheRowBefore) {
  // One that goes on after a step of loss 3.
  const auto report = Open({.folder = folder_, .total_steps = 9, .sums = {.loss = 3, .steps = 1}});
  report->AddStep(After(2, 1), 100, 0.25);
  EXPECT_EQ(report->sums().loss, 4);
  EXPECT_EQ(report->sums().steps, 2);
  ASSERT_TRUE(report->WriteSteps(After(2, 1), {{"peak_bytes", 7}}).ok());
  EXPECT_EQ(report->sums().steps, 0);
  report->AddStep(After(3, 8), 100, 0.5);
  ASSERT_TRUE(report->WriteSteps(After(3, 8), {}).ok());
  TrainState evaluated = After(3, 8);
  evaluated.val_loss = 0.5;
  evaluated.val_metrics["accuracy"] = 0.75;
  ASSERT_TRUE(report->WriteEvaluation(evaluated, {"a sample"}).ok());
  EXPECT_EQ(Rows(),
            "{\"step\":2,\"loss\":2.0,\"lr\":0.5,\"grad_norm\":2.0,\"tokens_per_second\":400.0,"
            "\"peak_bytes\":7}\n"
            "{\"step\":3,\"loss\":8.0,\"lr\":0.5,\"grad_norm\":2.0,\"tokens_per_second\":200.0}\n"
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
  report->AddStep(After(1, 1), 1, 1);
  ASSERT_TRUE(report->WriteSteps(After(1, 1), {}).ok());
  TrainState evaluated = After(1, 1);
  evaluated.val_loss = 0.5;
  ASSERT_TRUE(report->WriteEvaluation(evaluated, {}).ok());
  EXPECT_EQ(rows.size(), 2u);
  EXPECT_EQ(Rows(), "{\"mine\":1}\n");
}

TEST_F(RunReportTest, OtherRanksAddUpAndWriteNothing) {
  const auto report = Open({.prints = false, .folder = folder_, .total_steps = 9});
  report->AddStep(After(1, 5), 10, 1);
  EXPECT_EQ(report->sums().loss, 5);
  ASSERT_TRUE(report->WriteSteps(After(1, 5), {}).ok());
  EXPECT_EQ(report->sums().loss, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace tessera::train
