// SPDX-License-Identifier: Apache-2.0
// The loops that docs/training-loops.md shows, run with one rank and with two.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "tests/process/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The losses that each loop printed.
std::map<std::string, std::vector<double>> LossesOn(int ranks) {
  const std::string out = testing::TempDir() + "/training_loops";
  fs::remove_all(out);
  Process run({{.ranks = ranks, .arguments = {out}, .program = "examples/training_loops"}},
              out + "_log");
  EXPECT_EQ(run.ExitCode(), 0) << run.Errors();
  const std::string output = run.Output();
  EXPECT_NE(output.find("words: one two three\n"), std::string::npos) << output;
  EXPECT_TRUE(fs::exists(out + "/checkpoint-20/checkpoint.json"));
  EXPECT_TRUE(fs::exists(out + "/model/model.safetensors"));
  std::map<std::string, std::vector<double>> losses;
  const std::regex line("(\\w+), step (\\d+): loss ([0-9.e-]+)");
  for (std::sregex_iterator it(output.begin(), output.end(), line), end; it != end; ++it) {
    losses[(*it)[1]].push_back(std::stod((*it)[3]));
  }
  return losses;
}

TEST(TrainingLoopsTest, EveryLoopLearnsOnOneRankAndOnTwo) {
  for (const int ranks : {1, 2}) {
    const auto losses = LossesOn(ranks);
    ASSERT_EQ(losses.size(), 5u) << ranks;
    for (const auto& [loop, values] : losses) {
      ASSERT_EQ(values.size(), 2u) << loop;
      EXPECT_LT(values[1], values[0]) << loop << " on " << ranks;
    }
  }
}

}  // namespace
}  // namespace tessera
