// SPDX-License-Identifier: Apache-2.0
// Pages show what their programs print.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/process/shell.h"

namespace tessera {
namespace {

// The ```text blocks of a page, one after the other.
std::string ShownOutput(const std::string& page) {
  std::ifstream in(page);
  EXPECT_TRUE(in.good()) << page;
  std::string shown;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line == "```text") {
      inside = true;
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      shown += line + "\n";
    }
  }
  return shown;
}

TEST(PagesTest, PagesShowWhatTheirProgramsPrint) {
  const std::string out = testing::TempDir() + "/callbacks";
  for (const auto& [page, command] : std::vector<std::pair<std::string, std::string>>{
           {"tensors", "examples/tensors"},
           {"debugging", "examples/debugging"},
           {"callbacks-and-hooks", "examples/callbacks_and_hooks " + out},
           {"writing-a-model", "examples/memory_layer"}}) {
    const ShellRun ran = RunShell(command);
    EXPECT_EQ(ran.code, 0) << command;
    EXPECT_EQ(ShownOutput("docs/" + page + ".md"), ran.output);
  }
}

ShellRun OnTwoRanks(const std::string& argument) {
  return RunShell("third_party/bazel/mpi_test.sh 2 examples/on_ranks " + argument);
}

// The lines of a job that fails which are its own, not mpirun's.
std::string OwnErrors(const ShellRun& ran) {
  std::string errors;
  for (const std::string& line : Lines(ran.output)) {
    if (line.starts_with("error: ")) errors += line + "\n";
  }
  return errors;
}

TEST(PagesTest, ThePageOfRanksShowsWhatTwoRanksPrint) {
  const ShellRun good = OnTwoRanks("");
  EXPECT_EQ(good.code, 0);
  const ShellRun alone = OnTwoRanks("throw");
  EXPECT_EQ(alone.code, 1);
  const ShellRun agreed = OnTwoRanks("agree");
  EXPECT_EQ(agreed.code, 2);
  EXPECT_EQ(ShownOutput("docs/programs-on-ranks.md"),
            good.output + OwnErrors(alone) + OwnErrors(agreed));
}

}  // namespace
}  // namespace tessera
