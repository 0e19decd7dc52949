// SPDX-License-Identifier: Apache-2.0
// The flow at both levels: the same losses, and less of the device than a replicated model takes.
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

namespace fs = std::filesystem;

struct Outcome {
  std::vector<double> losses;
  double device = 0;  // MiB
  double host = 0;
};

class Zero3FlowTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/zero3_flow";
    fs::create_directories(root_ + "/gpt2");
    std::ofstream(root_ + "/gpt2/config.json") << nlohmann::json({{"model_type", "gpt2"},
                                                                  {"vocab_size", 97},
                                                                  {"n_positions", 16},
                                                                  {"n_embd", 96},
                                                                  {"n_layer", 8},
                                                                  {"n_head", 4}});
  }

  std::vector<std::string> Flags(const std::vector<std::string>& more) const {
    std::vector<std::string> flags = {
        "--model", root_ + "/gpt2", "--batch_size", "2",           "--seq_len",
        "16",      "--lr",          "3e-3",         "--max_steps", "12"};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }

  Outcome Run(int ranks, const std::vector<std::string>& more) {
    Process run(
        {{.ranks = ranks, .arguments = Flags(more), .program = "examples/flows/zero3_gpt2"}},
        root_ + "/log");
    EXPECT_EQ(run.ExitCode(), 0) << run.Errors();
    const std::string output = run.Output();
    Outcome outcome;
    const std::regex line("step (\\d+): loss ([0-9.]+)");
    for (std::sregex_iterator it(output.begin(), output.end(), line), end; it != end; ++it) {
      outcome.losses.push_back(std::stod((*it)[2]));
    }
    std::smatch memory;
    const std::regex last("MiB at most: device ([0-9.]+), host ([0-9.]+)");
    EXPECT_TRUE(std::regex_search(output, memory, last)) << output;
    if (memory.size() == 3) {
      outcome.device = std::stod(memory[1]);
      outcome.host = std::stod(memory[2]);
    }
    return outcome;
  }

  std::string root_;
};

constexpr char kEngine[] = "examples/flows/zero3_offload.json";

TEST_F(Zero3FlowTest, BothLevelsTrainOnLessOfTheDevice) {
  const Outcome replicated = Run(1, {"--zero", "0"});
  ASSERT_EQ(replicated.losses.size(), 12u);
  EXPECT_LT(replicated.losses.back(), replicated.losses.front() - 0.5);
  const Outcome store = Run(1, {});
  const Outcome engine = Run(1, {"--config", kEngine});
  EXPECT_EQ(store.losses, replicated.losses);
  EXPECT_EQ(engine.losses, replicated.losses);
  for (const Outcome& cut : {store, engine}) {
    EXPECT_LT(cut.device, replicated.device / 3);
    EXPECT_GT(cut.host, replicated.device / 2);
  }
  EXPECT_EQ(replicated.host, 0);
}

TEST_F(Zero3FlowTest, TwoRanksShareTheHostsPart) {
  const Outcome one = Run(1, {});
  const Outcome store = Run(2, {});
  const Outcome engine = Run(2, {"--config", kEngine});
  ASSERT_EQ(store.losses.size(), 12u);
  EXPECT_EQ(store.losses, engine.losses);
  EXPECT_LT(store.losses.back(), store.losses.front() - 0.5);
  EXPECT_LT(store.host, 0.6 * one.host);
}

TEST_F(Zero3FlowTest, AModelThatTheDeviceHasNoRoomForTrains) {
  const std::string limit = "8";
  EXPECT_EQ(Run(1, {"--device_mib", limit}).losses.size(), 12u);
  Process replicated({{.arguments = Flags({"--device_mib", limit, "--zero", "0"}),
                       .program = "examples/flows/zero3_gpt2"}},
                     root_ + "/log");
  EXPECT_NE(replicated.ExitCode(), 0);
  EXPECT_NE(replicated.Errors().find("error: "), std::string::npos) << replicated.Errors();
}

}  // namespace
}  // namespace tessera
