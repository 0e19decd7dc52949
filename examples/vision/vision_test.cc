// SPDX-License-Identifier: Apache-2.0
// The commands for a family of one's own with running statistics: it trains, continues after a
// stop, is evaluated, and layouts that have no place for the statistics are refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "examples/vision/test_pictures.h"
#include "nlohmann/json.hpp"
#include "tests/process/process.h"

namespace tessera {
namespace {

class VisionTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::filesystem::remove_all(Root());
    std::filesystem::create_directories(Root());
    WritePictures("vision_pictures");
  }
  static std::string Root() { return testing::TempDir() + "/vision"; }
  static std::string Pictures() { return testing::TempDir() + "/vision_pictures"; }
  static std::string Path(const std::string& name) { return Root() + "/" + name; }

  static Process Vision(const std::vector<std::string>& arguments, int ranks = 1) {
    return Process({{.ranks = ranks, .arguments = arguments, .program = "examples/vision/vision"}},
                   Path("log"));
  }
  // ResNet-18 made thin.
  static std::vector<std::string> Train(const std::string& out,
                                        const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train",
                                          "resnet18-mnist",
                                          "--task",
                                          "image_classification",
                                          "--data",
                                          Pictures(),
                                          "--out",
                                          Path(out),
                                          "--config-overrides",
                                          "width=4,blocks_per_stage=1",
                                          "--optimizer",
                                          "sgd",
                                          "--momentum",
                                          "0.9",
                                          "--lr",
                                          "0.02",
                                          "--lr-schedule",
                                          "constant",
                                          "--eval-strategy",
                                          "no",
                                          "--threads",
                                          "1",
                                          "--log-interval",
                                          "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static void ExpectAllRight(const std::string& out) {
    Process eval = Vision({"eval", "--model", Path(out) + "/model", "--data", Pictures()});
    ASSERT_EQ(eval.ExitCode(), 0) << eval.Errors();
    EXPECT_NE(eval.Output().find("accuracy 1.0000"), std::string::npos) << eval.Output();
    EXPECT_NE(eval.Output().find("samples 16"), std::string::npos) << eval.Output();
  }
  static void Succeed(Process run) { ASSERT_EQ(run.ExitCode(), 0) << run.Errors(); }
};

TEST_F(VisionTest, TrainsAndEvaluates) {
  Succeed(Vision(Train("run", {"--max-steps", "40", "--batch-size", "16"})));
  ExpectAllRight("run");
}

// The running statistics, too, are as they would be without the stop.
TEST_F(VisionTest, GoesOnAfterAStopWithTheSameBits) {
  Succeed(Vision(Train("whole", {"--random-crop", "--max-steps", "10"})));
  Succeed(Vision(Train("halves", {"--random-crop", "--max-steps", "5", "--save-interval", "5"})));
  ASSERT_TRUE(std::filesystem::exists(Path("halves/checkpoint-5")));
  EXPECT_NE(Weights(Path("halves")), Weights(Path("whole")));
  Succeed(Vision(Train("halves", {"--random-crop", "--max-steps", "10", "--resume"})));
  EXPECT_EQ(Metrics(Path("halves")), Metrics(Path("whole")));
  ASSERT_FALSE(Weights(Path("whole")).empty());
  EXPECT_EQ(Weights(Path("halves")), Weights(Path("whole")));
}

// Ranks that share a batch out each normalise their own pictures; all of them hold one model.
TEST_F(VisionTest, TrainsDataParallelUpToZero2) {
  Succeed(Vision(Train("ranks", {"--max-steps", "40", "--batch-size", "8", "--zero", "2"}), 2));
  ExpectAllRight("ranks");
}

TEST_F(VisionTest, LayoutsWithoutRunningStatisticsAreRefused) {
  const auto refused = [](const std::string& out, const std::vector<std::string>& layout,
                          int ranks) {
    Process run = Vision(Train(out, layout), ranks);
    EXPECT_NE(run.ExitCode(), 0);
    const std::string error = run.Errors();
    EXPECT_TRUE(error.starts_with("error: ")) << error;
    EXPECT_EQ(error.find('\n'), error.size() - 1) << error;
    EXPECT_NE(error.find("pipelines and ZeRO 3 have none"), std::string::npos) << error;
  };
  refused("cut", {"--max-steps", "1", "--zero", "3"}, 1);
  refused("stages", {"--max-steps", "1", "--pp", "2", "--num-microbatches", "2"}, 2);
}

}  // namespace
}  // namespace tessera
