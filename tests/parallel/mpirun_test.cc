// SPDX-License-Identifier: Apache-2.0
// `mpirun -n N tessera train ...` gives the run of one process: layouts of all axes on real
// ranks, ten steps each. tests/parallel/layouts_test.cc has the rest, on ranks as threads.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "nlohmann/json.hpp"
#include "tests/process/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int kMicroBatches = 8;  // of a step, over all ranks

struct Layout {
  int ranks;
  int tp;
  bool sequence_parallel = false;
  int accumulation = 1;
  bool deterministic = true;
  int pp = 1;
  std::string schedule = {};
  int zero = 0;
  bool cpu_offload = false;
};

std::ostream& operator<<(std::ostream& out, const Layout& l) {
  return out << "n" << l.ranks << "_tp" << l.tp << (l.sequence_parallel ? "_sp" : "") << "_acc"
             << l.accumulation << (l.deterministic ? "" : "_fast")
             << (l.pp > 1 ? "_pp" + std::to_string(l.pp) : "")
             << (l.schedule.empty() ? "" : "_" + std::to_string(l.schedule.size()))
             << (l.zero > 0 ? "_zero" + std::to_string(l.zero) : "")
             << (l.cpu_offload ? "_offload" : "");
}

class MpirunTest : public testing::Test {
 protected:
  // Once for all instantiations: references are shared.
  static void SetUpTestSuite() {
    static bool ready = false;
    if (std::exchange(ready, true)) return;
    fs::remove_all(Root());
    fs::create_directories(Root());
    // Documents of many lengths: every row has another number of targets.
    std::ofstream text(Root() + "/text.jsonl");
    for (int i = 0; i < 400; ++i) {
      text << "{\"text\": \"" << std::string(static_cast<size_t>(1 + i * i % 37), 'a' + i % 26)
           << " number " << i * 7919 % 1000 << "\"}\n";
    }
  }
  static std::string Root() { return testing::TempDir() + "/mpirun_test"; }
  static std::string Out(const std::string& name) { return Root() + "/" + name + "_run"; }

  static std::vector<std::string> Train(const Layout& layout, const std::string& name) {
    std::vector<std::string> arguments = {"train",
                                          "gpt-tiny",
                                          "--data",
                                          Root() + "/text.jsonl",
                                          "--out",
                                          Out(name),
                                          "--tokenizer",
                                          "byte",
                                          "--reset-at-documents",
                                          "--max-steps",
                                          "10",
                                          "--seq-len",
                                          "21",
                                          "--batch-size",
                                          "1",
                                          "--dropout",
                                          "0.1",
                                          "--lr",
                                          "3e-3",
                                          "--threads",
                                          "1",
                                          "--log-interval",
                                          "1",
                                          "--eval-interval",
                                          "5",
                                          "--eval-batches",
                                          "7",
                                          "--gradient-accumulation-steps",
                                          std::to_string(layout.accumulation),
                                          "--tp",
                                          std::to_string(layout.tp)};
    if (layout.deterministic) arguments.push_back("--deterministic");
    if (layout.pp > 1) arguments.insert(arguments.end(), {"--pp", std::to_string(layout.pp)});
    if (!layout.schedule.empty()) {
      arguments.insert(arguments.end(), {"--schedule", layout.schedule});
    }
    if (layout.zero > 0) arguments.insert(arguments.end(), {"--zero", std::to_string(layout.zero)});
    if (layout.cpu_offload) arguments.push_back("--cpu-offload");
    if (layout.cpu_offload && layout.zero == 3) arguments.push_back("--offload-parameters");
    if (layout.sequence_parallel) arguments.push_back("--sequence-parallel");
    return arguments;
  }

  // The same run in one process, once per way of summing.
  static const std::string& Reference(bool deterministic) {
    static auto* references = new std::map<bool, std::string>;
    std::string& name = (*references)[deterministic];
    if (!name.empty()) return name;
    name = deterministic ? "one" : "one_fast";
    Process one(Train({1, 1, false, kMicroBatches, deterministic}, name), Root() + "/" + name);
    EXPECT_EQ(one.ExitCode(), 0) << one.Errors();
    return name;
  }
};

class LayoutTest : public MpirunTest, public testing::WithParamInterface<Layout> {};

TEST_P(LayoutTest, GivesTheRunOfOneProcess) {
  const Layout& layout = GetParam();
  ASSERT_EQ(layout.ranks / (layout.tp * layout.pp) * layout.accumulation, kMicroBatches);
  const std::string& one = Reference(layout.deterministic);
  const std::string name = testing::PrintToString(layout);
  Process job(layout.ranks, Train(layout, name), Root() + "/" + name);
  ASSERT_EQ(job.ExitCode(), 0) << job.Errors();
  EXPECT_EQ(job.Errors(), "");
  // One rank prints.
  const std::string output = job.Output();
  EXPECT_EQ(output.find("trained 10 steps"), output.rfind("trained 10 steps")) << output;
  EXPECT_NE(output.find("trained 10 steps"), std::string::npos) << output;

  const auto expected = Metrics(Out(one));
  const auto actual = Metrics(Out(name));
  if (layout.tp == 1 && layout.deterministic) {
    EXPECT_EQ(actual, expected);
    EXPECT_TRUE(Weights(Out(name)) == Weights(Out(one))) << "the weights differ";
    return;
  }
  ASSERT_EQ(actual.size(), 12u);
  ASSERT_EQ(expected.size(), 12u);
  for (size_t i = 0; i < expected.size(); ++i) {
    const char* key = expected[i].contains("loss") ? "loss" : "val_loss";
    const double loss = expected[i][key].get<double>();
    EXPECT_NEAR(actual[i].value(key, 0.0), loss, 2e-6 * loss) << key << " of row " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, LayoutTest,
                         testing::Values(Layout{2, 1, false, 4}, Layout{4, 1, false, 2},
                                         Layout{8, 1, false, 1}, Layout{4, 1, false, 2, false},
                                         Layout{2, 2, false, 8}, Layout{3, 3, true, 8},
                                         Layout{4, 4, true, 8}, Layout{8, 2, true, 2},
                                         Layout{8, 4, false, 4}),
                         testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    ThreeAxes, LayoutTest,
    testing::Values(Layout{.ranks = 2, .tp = 1, .accumulation = 8, .pp = 2},
                    Layout{.ranks = 2, .tp = 1, .accumulation = 4, .zero = 3, .cpu_offload = true},
                    Layout{.ranks = 8, .tp = 2, .accumulation = 4, .pp = 2, .zero = 1},
                    Layout{.ranks = 8, .tp = 1, .accumulation = 4, .pp = 4, .schedule = "zb-h1"},
                    Layout{.ranks = 8, .tp = 1, .accumulation = 2, .pp = 2, .zero = 2},
                    Layout{.ranks = 8, .tp = 2, .accumulation = 2, .zero = 3},
                    Layout{.ranks = 8, .tp = 2, .accumulation = 8, .pp = 4, .schedule = "gpipe"},
                    Layout{
                        .ranks = 4, .tp = 1, .accumulation = 4, .pp = 2, .schedule = "interleaved"},
                    Layout{.ranks = 8, .tp = 1, .accumulation = 1, .zero = 3}),
    testing::PrintToStringParamName());

// Weights used on both stages, sources and targets of many lengths.
TEST_F(MpirunTest, AnEncoderDecoderInStages) {
  std::ofstream sources(Root() + "/source.txt");
  std::ofstream targets(Root() + "/target.txt");
  for (int i = 0; i < 60; ++i) {
    sources << std::string(static_cast<size_t>(1 + i % 7), 'a' + i % 26) << " count " << i << "\n";
    targets << "count " << i << std::string(static_cast<size_t>(1 + i % 5), 'b') << "\n";
  }
  sources.close();
  targets.close();
  const auto train = [](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "train",
        "t5-mini",
        "--data",
        Root() + "/source.txt",
        "--target-data",
        Root() + "/target.txt",
        "--out",
        Out(name),
        "--tokenizer",
        "byte",
        "--max-steps",
        "2",
        "--config-overrides",
        "d_model=32,d_ff=64,d_kv=8,num_layers=2,num_decoder_layers=2",
        "--batch-size",
        "2",
        "--num-microbatches",
        "2",
        "--threads",
        "1",
        "--log-interval",
        "1",
        "--eval-batches",
        "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  Process one(train("t5_one", {}), Root() + "/t5_one");
  ASSERT_EQ(one.ExitCode(), 0) << one.Errors();
  Process two(2, train("t5_pp2", {"--pp", "2"}), Root() + "/t5_pp2");
  ASSERT_EQ(two.ExitCode(), 0) << two.Errors();
  EXPECT_EQ(Metrics(Out("t5_pp2")), Metrics(Out("t5_one")));
  EXPECT_TRUE(Weights(Out("t5_pp2")) == Weights(Out("t5_one"))) << "the weights differ";
}

}  // namespace
}  // namespace tessera
