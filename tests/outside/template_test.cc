// SPDX-License-Identifier: Apache-2.0
// The programs of the project template (examples/outside): a loop of its own, and every command for
// its family.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/process/process.h"

namespace tessera {
namespace {

using Parts = std::vector<Process::Part>;

constexpr char kModel[] = "examples/outside/bazel/my_model";
constexpr char kCommands[] = "examples/outside/bazel/my_tessera";

std::string Path(const std::string& name) { return testing::TempDir() + "/" + name; }

std::string Text() {
  const std::string path = Path("book.txt");
  std::ofstream out(path);
  for (int i = 0; i < 2000; ++i) out << i << ' ';
  return path;
}

// What `final loss X` says.
double FinalLoss(int ranks) {
  Process run(Parts{{.ranks = ranks, .arguments = {Text()}, .program = kModel}}, Path("my_model"));
  EXPECT_EQ(run.ExitCode(), 0) << run.Errors();
  const std::string output = run.Output();
  std::smatch loss;
  EXPECT_TRUE(std::regex_match(output, loss, std::regex("final loss ([0-9.]+)\n"))) << output;
  return std::stod(loss[1]);
}

TEST(TemplateTest, ItsLoopLearnsOnOneRankAndOnTwo) {
  // A model that knows nothing has log(257) = 5.5, one that only counts the bytes 2.4.
  EXPECT_LT(FinalLoss(1), 3.5);
  EXPECT_LT(FinalLoss(2), 3.5);
}

TEST(TemplateTest, ItsLoopSaysWhatIsWrong) {
  Process missing(Parts{{.arguments = {Path("none.txt")}, .program = kModel}}, Path("missing"));
  EXPECT_EQ(missing.ExitCode(), 2);
  EXPECT_EQ(missing.Errors(), "error: " + Path("none.txt") + ": No such file or directory\n");
}

// The losses of five steps, as the command prints them to metrics.jsonl.
std::vector<double> LossesOn(int ranks, const std::vector<std::string>& layout,
                             const std::string& model = "my-model") {
  const std::string out = Path("run");
  std::filesystem::remove_all(out);
  std::vector<std::string> arguments = {
      "train",          model, "--data",      Text(), "--out",          out,
      "--seq-len",      "16",  "--lr",        "1e-2", "--batch-size",   "4",
      "--log-interval", "1",   "--max-steps", "5",    "--deterministic"};
  arguments.insert(arguments.end(), layout.begin(), layout.end());
  Process run(Parts{{.ranks = ranks, .arguments = arguments, .program = kCommands}}, Path("train"));
  EXPECT_EQ(run.ExitCode(), 0) << run.Errors();
  EXPECT_FALSE(Weights(out).empty());
  std::vector<double> losses;
  for (const nlohmann::json& row : Metrics(out)) {
    if (row.contains("loss")) losses.push_back(row["loss"]);
  }
  EXPECT_EQ(losses.size(), 5u);
  return losses;
}

TEST(TemplateTest, EveryCommandKnowsItsFamilyOnEveryLayout) {
  Process models(Parts{{.arguments = {"models"}, .program = kCommands}}, Path("models"));
  EXPECT_EQ(models.ExitCode(), 0) << models.Errors();
  EXPECT_NE(models.Output().find("my-model"), std::string::npos) << models.Output();

  const std::vector<double> alone = LossesOn(1, {});
  EXPECT_LT(alone.back(), alone.front());
  EXPECT_EQ(LossesOn(2, {"--pp", "2", "--batch-size", "4"}), alone);
  const std::vector<double> split = LossesOn(2, {"--tp", "2", "--sequence-parallel"});
  ASSERT_EQ(split.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(split[i], alone[i], 1e-4);
}

// A folder of a configuration alone.
std::string ConfigOf(int layers) {
  const std::string folder = Path("layers_" + std::to_string(layers));
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json")
      << R"({"model_type": "my_model", "vocab_size": 257, "width": 96, "layers": )" << layers
      << "}";
  return folder;
}

TEST(TemplateTest, ItsBlocksAreRecomputed) {
  const std::vector<std::string> bytes = {"--tokenizer", "byte"};
  const std::vector<double> once = LossesOn(1, bytes, ConfigOf(12));
  const std::vector<std::string> recomputed = {"--tokenizer", "byte", "--gradient-checkpointing"};
  EXPECT_EQ(LossesOn(1, recomputed, ConfigOf(12)), once);

  const std::string flat = ConfigOf(0);
  Process none(Parts{{.arguments = {"train", flat, "--data", Text(), "--out", Path("none"),
                                    "--seq-len", "16", "--max-steps", "1", "--tokenizer", "byte",
                                    "--gradient-checkpointing"},
                      .program = kCommands}},
               Path("none"));
  EXPECT_EQ(none.ExitCode(), 2);
  EXPECT_NE(none.Errors().find("error: --gradient-checkpointing: " + flat +
                               " has no block between its first and its last, so there is nothing "
                               "to recompute\n"),
            std::string::npos)
      << none.Errors();
}

}  // namespace
}  // namespace tessera
