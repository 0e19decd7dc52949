// SPDX-License-Identifier: Apache-2.0
// The program of docs/data-and-tasks.md: its task is one of the command's.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/process/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class CompletionTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    fs::create_directories(root_);
    const std::vector<std::string> words = {"zero", "one", "two",   "three", "four",
                                            "five", "six", "seven", "eight", "nine"};
    std::ofstream numbers(root_ + "/numbers.txt");
    for (size_t i = 0; i < 40; ++i) {
      numbers << i << "=" << (i < 10 ? "" : words[i / 10] + " ") << words[i % 10] << "\n";
    }
  }
  Process Run(int ranks, const std::vector<std::string>& arguments) const {
    return Process({{.ranks = ranks, .arguments = arguments, .program = "examples/completion"}},
                   root_ + "/log");
  }
  Process Train(int ranks, const std::string& out, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"train",
                                          "gpt-tiny",
                                          "--task",
                                          "completion",
                                          "--tokenizer",
                                          "byte",
                                          "--data",
                                          Path("numbers.txt"),
                                          "--val-data",
                                          Path("numbers.txt"),
                                          "--out",
                                          Path(out),
                                          "--lr",
                                          "3e-3",
                                          "--lr-schedule",
                                          "constant",
                                          "--dropout",
                                          "0",
                                          "--batch-size",
                                          "4",
                                          "--max-steps",
                                          "200",
                                          "--eval-interval",
                                          "100",
                                          "--deterministic"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(ranks, arguments);
  }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  // Of evaluations and of steps, without what depends on the clock.
  std::vector<double> Of(const std::string& out, const std::string& key) const {
    std::vector<double> values;
    for (const nlohmann::json& row : Metrics(Path(out))) {
      if (row.contains(key)) values.push_back(row[key]);
    }
    return values;
  }

  const std::string root_ = testing::TempDir() + "/completion";
};

TEST_F(CompletionTest, LearnsAnswersAndCountsThemOnAnyRanks) {
  // The same two micro-batches of a step on one rank and on two.
  Process one = Train(1, "one", {"--gradient-accumulation-steps", "2"});
  ASSERT_EQ(one.ExitCode(), 0) << one.Errors();
  const std::vector<double> right = Of("one", "val_exact_match");
  ASSERT_EQ(right.size(), 2u) << one.Output();
  EXPECT_LT(right[0], right[1]);
  EXPECT_GT(right[1], 0.8);

  Process two = Train(2, "two", {});
  ASSERT_EQ(two.ExitCode(), 0) << two.Errors();
  EXPECT_EQ(Of("two", "val_exact_match"), right);
  EXPECT_EQ(Of("two", "val_loss"), Of("one", "val_loss"));

  Process eval = Run(1, {"eval", "--model", Path("one/model"), "--data", Path("numbers.txt"),
                         "--task", "completion"});
  ASSERT_EQ(eval.ExitCode(), 0) << eval.Errors();
  EXPECT_NE(eval.Output().find("exact_match"), std::string::npos) << eval.Output();
}

TEST_F(CompletionTest, WhatIsWrongIsOneLine) {
  const auto fails = [&](const std::vector<std::string>& more, const std::string& line) {
    Process run = Train(1, "bad", more);
    EXPECT_EQ(run.ExitCode(), 2);
    EXPECT_NE(run.Errors().find(line), std::string::npos) << run.Errors();
  };
  fails({"--separator", ": "}, Path("numbers.txt") + ":1: no ': '\n");
  fails({"--seq-len", "5"}, Path("numbers.txt") + ":1: 6 tokens, more than 5\n");
  std::ofstream(Path("text.txt")) << "some text, and more of it, for the built-in task\n";
  Process other = Run(1, {"train", "gpt-tiny", "--data", Path("text.txt"), "--tokenizer", "byte",
                          "--out", Path("other"), "--separator", ":"});
  EXPECT_EQ(other.ExitCode(), 2);
  EXPECT_NE(other.Errors().find("separator"), std::string::npos) << other.Errors();
}

}  // namespace
}  // namespace tessera
