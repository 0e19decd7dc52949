// SPDX-License-Identifier: Apache-2.0
// Lines of transformers' own command line train as its Trainer does: the losses, rates and norms
// that testdata/hugging_face_runs/make_runs.py wrote down, step by step, whatever the line leaves
// unsaid.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/cli_runs.h"

namespace tessera {
namespace {

class HuggingFaceRunsTest : public CliRuns {};

TEST_F(HuggingFaceRunsTest, LossesAreTheTrainers) {
  const std::string given = "tests/cli/testdata/hugging_face_runs";
  const auto runs = nlohmann::json::parse(Read(given + "/runs.json"));
  ASSERT_GE(runs.size(), 15u);
  for (const auto& run : runs) {
    std::vector<std::string> line = {"train",
                                     "--model_name_or_path",
                                     given + "/model",
                                     "--train_file",
                                     given + "/train.json",
                                     "--task_name",
                                     "sst2",
                                     "--do_train",
                                     "--output_dir",
                                     Path("run"),
                                     "--max_seq_length",
                                     "16",
                                     "--logging_steps",
                                     "1",
                                     "--report_to",
                                     "none",
                                     "--save_strategy",
                                     "no",
                                     "--use_cpu",
                                     "--overwrite_output_dir"};
    // What the recorded runs have besides: data in their order.
    line.insert(line.end(), {"--train_sampling_strategy", "sequential", "--threads", "1"});
    for (const auto& [key, value] : run["arguments"].items()) {
      line.push_back("--" + key);
      line.push_back(value.is_string() ? value.get<std::string>() : value.dump());
    }
    const std::string what = run["arguments"].dump();
    const std::string said = Output(line);
    EXPECT_NE(said.find("defaults: Hugging Face's\n"), std::string::npos) << what << said;
    std::istringstream rows(Read(Path("run") + "/metrics.jsonl"));
    size_t steps = 0;
    for (std::string text; std::getline(rows, text);) {
      const auto row = nlohmann::json::parse(text);
      if (!row.contains("loss")) continue;
      if (steps < run["rows"].size()) {
        const auto& theirs = run["rows"][steps];
        const double norm = theirs[2];
        EXPECT_NEAR(row["loss"], theirs[0], 1e-6) << what << " step " << steps + 1;
        EXPECT_NEAR(row["lr"], theirs[1], 1e-15) << what << " step " << steps + 1;
        EXPECT_NEAR(row["grad_norm"], norm, 1e-5 * std::max(1.0, norm))
            << what << " step " << steps + 1;
      }
      ++steps;
    }
    EXPECT_EQ(steps, run["steps"]) << what;
  }
}

}  // namespace
}  // namespace tessera
