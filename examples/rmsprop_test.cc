// SPDX-License-Identifier: Apache-2.0
// The program of docs/writing-an-optimizer.md: its optimizer is one of the command's.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/process/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct Settings {
  int ranks = 1;
  const char* optimizer = "rmsprop";
  const char* batch_size = "4";
};

class RmsPropTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    fs::create_directories(root_);
    std::ofstream text(root_ + "/text.txt");
    for (int i = 0; i < 500; ++i) text << "the cat sat on the mat. ";
  }
  Process Run(const std::string& out, const std::vector<std::string>& more,
              const Settings& settings = {}) const {
    std::vector<std::string> arguments = {"train",
                                          "gpt-tiny",
                                          "--data",
                                          root_ + "/text.txt",
                                          "--tokenizer",
                                          "byte",
                                          "--out",
                                          root_ + "/" + out,
                                          "--optimizer",
                                          settings.optimizer,
                                          "--batch-size",
                                          settings.batch_size,
                                          "--seq-len",
                                          "32",
                                          "--lr",
                                          "1e-3",
                                          "--lr-schedule",
                                          "constant",
                                          "--dropout",
                                          "0",
                                          "--eval-strategy",
                                          "no",
                                          "--log-interval",
                                          "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Process(
        {{.ranks = settings.ranks, .arguments = arguments, .program = "examples/rmsprop"}},
        root_ + "/log");
  }
  // Of every step.
  std::vector<double> Losses(const std::string& out) const {
    std::vector<double> losses;
    for (const nlohmann::json& row : Metrics(root_ + "/" + out)) {
      if (row.contains("loss")) losses.push_back(row["loss"]);
    }
    return losses;
  }

  const std::string root_ = testing::TempDir() + "/rmsprop";
};

TEST_F(RmsPropTest, TrainsAloneAndCutOverRanksAndIsResumed) {
  Process alone = Run("alone", {"--max-steps", "20"});
  ASSERT_EQ(alone.ExitCode(), 0) << alone.Errors();
  const std::vector<double> losses = Losses("alone");
  ASSERT_EQ(losses.size(), 20u);
  EXPECT_LT(losses.back(), 0.7 * losses.front());

  Process cut = Run("cut", {"--max-steps", "20", "--zero", "2"}, {.ranks = 2, .batch_size = "2"});
  ASSERT_EQ(cut.ExitCode(), 0) << cut.Errors();
  const std::vector<double> same = Losses("cut");
  ASSERT_EQ(same.size(), losses.size());
  for (size_t i = 0; i < same.size(); ++i) EXPECT_NEAR(same[i], losses[i], 1e-4) << i;

  Process half = Run("halves", {"--max-steps", "10", "--save-interval", "10"});
  ASSERT_EQ(half.ExitCode(), 0) << half.Errors();
  Process rest = Run("halves", {"--max-steps", "20", "--resume"});
  ASSERT_EQ(rest.ExitCode(), 0) << rest.Errors();
  EXPECT_EQ(Losses("halves"), losses);
}

TEST_F(RmsPropTest, OptionsAreKeysOfTheRun) {
  Process bad = Run("bad", {"--max-steps", "1", "--alpha", "1"});
  EXPECT_EQ(bad.ExitCode(), 2);
  EXPECT_NE(bad.Errors().find("--alpha must be"), std::string::npos) << bad.Errors();
  Process other = Run("other", {"--max-steps", "1", "--alpha", "0.9"}, {.optimizer = "sgd"});
  EXPECT_EQ(other.ExitCode(), 2);
  EXPECT_NE(other.Errors().find("alpha"), std::string::npos) << other.Errors();
}

}  // namespace
}  // namespace tessera
