// SPDX-License-Identifier: Apache-2.0
#include "train/ranks/run_on_ranks.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/process/shell.h"

namespace tessera {
namespace {

struct Outcome {
  int code = 0;
  std::string text;
  std::vector<std::string> errors;  // the lines with "error: "
};

Outcome RunProgram(int ranks, const std::string& mode) {
  const std::string program = "train/testing/failing_ranks " + mode;
  const std::string command =
      ranks == 1 ? program : Concat("third_party/bazel/mpi_test.sh ", ranks, " ", program);
  Outcome outcome;
  const ShellRun ran = RunShell(command);
  outcome.code = ran.code;
  outcome.text = ran.output;
  for (const std::string& line : Lines(ran.output)) {
    if (line.starts_with("error: ")) outcome.errors.push_back(line);
  }
  return outcome;
}

TEST(RunOnRanksTest, OneLineTellsWhichRankFailed) {
  for (const auto& [mode, alone, among] : std::vector<std::array<std::string, 3>>{
           {"throw", "error: matmul: cannot multiply these",
            "error: rank 1: matmul: cannot multiply these"},
           {"status", "error: no 'vocab_size'", "error: rank 1: no 'vocab_size'"},
           {"agree", "error: text.txt: no such file", "error: rank 1: text.txt: no such file"}}) {
    for (const int ranks : {1, 2}) {
      const Outcome outcome = RunProgram(ranks, mode);
      EXPECT_EQ(outcome.errors, std::vector<std::string>{ranks == 1 ? alone : among})
          << outcome.text;
      EXPECT_EQ(outcome.code, mode == "throw" ? 1 : 2) << outcome.text;
      EXPECT_EQ(outcome.text.find("terminate called"), std::string::npos) << outcome.text;
    }
  }
}

TEST(RunOnRanksTest, RanksThatSucceedReturnZero) {
  const Outcome outcome = RunProgram(2, "run");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.text, "sum 2\n");
}

}  // namespace
}  // namespace tessera
