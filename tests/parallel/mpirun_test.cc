// `mpirun -n N tessera train ...` gives the run of one process: eight layouts on real ranks, ten
// steps each. tests/parallel/layouts_test.cc has the rest, on ranks as threads.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

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
};

std::ostream& operator<<(std::ostream& out, const Layout& l) {
  return out << "n" << l.ranks << "_tp" << l.tp << (l.sequence_parallel ? "_sp" : "") << "_acc"
             << l.accumulation << (l.deterministic ? "" : "_fast");
}

std::string NameOf(const Layout& layout) {
  std::ostringstream name;
  name << layout;
  return name.str();
}

class MpirunTest : public testing::TestWithParam<Layout> {
 protected:
  static void SetUpTestSuite() {
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

TEST_P(MpirunTest, GivesTheRunOfOneProcess) {
  const Layout& layout = GetParam();
  ASSERT_EQ(layout.ranks / layout.tp * layout.accumulation, kMicroBatches);
  const std::string& one = Reference(layout.deterministic);
  const std::string name = NameOf(layout);
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

INSTANTIATE_TEST_SUITE_P(Layouts, MpirunTest,
                         testing::Values(Layout{2, 1, false, 4}, Layout{4, 1, false, 2},
                                         Layout{8, 1, false, 1}, Layout{4, 1, false, 2, false},
                                         Layout{2, 2, false, 8}, Layout{3, 3, true, 8},
                                         Layout{4, 4, true, 8}, Layout{8, 2, true, 2},
                                         Layout{8, 4, false, 4}),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace tessera
