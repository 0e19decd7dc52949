// SPDX-License-Identifier: Apache-2.0
// The model of docs/writing-a-model.md trains once on all ranks that are started, and generates.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "nlohmann/json.hpp"
#include "tests/process/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

TEST(BigramTest, TrainsOnceOnAllRanksAndContinuesAText) {
  for (const int ranks : {1, 2}) {
    const std::string root = testing::TempDir() + "/bigram_" + std::to_string(ranks);
    fs::remove_all(root);
    fs::create_directories(root);
    {
      std::ofstream text(root + "/text.txt");
      for (int i = 0; i < 2000; ++i) text << "the ";
    }
    Process run({{.ranks = ranks,
                  .arguments = {root + "/text.txt", root + "/run"},
                  .program = "examples/bigram"}},
                root + "/log");
    ASSERT_EQ(run.ExitCode(), 0) << run.Errors();
    const std::string output = run.Output();
    const std::string written = "the the the the \n";
    EXPECT_NE(output.find(written), std::string::npos) << output;
    EXPECT_EQ(output.find(written), output.rfind(written)) << output;
    EXPECT_TRUE(fs::exists(root + "/run/checkpoint-200"));
    const auto rows = Metrics(root + "/run");
    EXPECT_EQ(std::count_if(rows.begin(), rows.end(),
                            [](const auto& row) { return row.contains("loss"); }),
              4);
  }
}

TEST(BigramTest, AFailureIsOneLine) {
  const std::string root = testing::TempDir() + "/bigram_failure";
  for (const int ranks : {1, 2}) {
    Process run(
        {{.ranks = ranks, .arguments = {"/no/such/text.txt", root}, .program = "examples/bigram"}},
        root + "_log");
    EXPECT_EQ(run.ExitCode(), 2);
    const std::string errors = run.Errors();
    EXPECT_TRUE(errors.starts_with("error: ")) << errors;
    EXPECT_EQ(errors.find("error: "), errors.rfind("error: ")) << errors;
    EXPECT_NE(errors.find("/no/such/text.txt"), std::string::npos) << errors;
  }
}

}  // namespace
}  // namespace tessera
