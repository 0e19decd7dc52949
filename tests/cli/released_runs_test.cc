// SPDX-License-Identifier: Apache-2.0
// Runs of released versions continue, and their models load (docs/compatibility.md). An archive has
// the run directory of that version's
//   tessera train gpt-tiny --config-overrides n_embd=4,n_layer=1,n_head=1,n_positions=16
//       --data run/text.txt --out run --tokenizer byte --max-steps 2 --seq-len 8 --batch-size 2
//       --optimizer sgd --lr 1e-2 --eval-batches 1 --threads 1
// and the text, without run/data and run/run.lock.
#include <regex>
#include <string>

#include "tests/cli/cli_runs.h"
#include "tests/process/shell.h"

namespace tessera {
namespace {

class ReleasedRunsTest : public CliRuns, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    const ShellRun ran = RunShell("tar -xzf tests/cli/testdata/run_" + std::string(GetParam()) +
                                  ".tar.gz -C '" + root_ + "'");
    ASSERT_EQ(ran.code, 0) << ran.output;
  }
};

INSTANTIATE_TEST_SUITE_P(Versions, ReleasedRunsTest, testing::Values("0.8.0"),
                         [](const auto& info) {
                           return std::regex_replace(std::string(info.param), std::regex("\\."),
                                                     "_");
                         });

TEST_P(ReleasedRunsTest, Continue) {
  const Outcome run = Run({"train",
                           "gpt-tiny",
                           "--config-overrides",
                           "n_embd=4,n_layer=1,n_head=1,n_positions=16",
                           "--data",
                           Path("run/text.txt"),
                           "--out",
                           Path("run"),
                           "--tokenizer",
                           "byte",
                           "--max-steps",
                           "4",
                           "--seq-len",
                           "8",
                           "--batch-size",
                           "2",
                           "--optimizer",
                           "sgd",
                           "--lr",
                           "1e-2",
                           "--eval-batches",
                           "1",
                           "--threads",
                           "1",
                           "--resume"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE((run.out + run.err).find("at step 2"), std::string::npos) << run.out << run.err;
  // That of the version itself, when it continued.
  const std::string said = run.out + run.err;
  std::smatch loss;
  ASSERT_TRUE(std::regex_search(said, loss, std::regex("step 4  val_loss ([0-9.]+)"))) << said;
  EXPECT_NEAR(std::stod(loss[1]), 5.528, 0.001);
}

TEST_P(ReleasedRunsTest, HaveModelsThatLoad) {
  EXPECT_FALSE(Output({"generate", "--model", Path("run/model"), "--prompt", "line",
                       "--max-new-tokens", "4", "--temperature", "0"})
                   .empty());
}

}  // namespace
}  // namespace tessera
