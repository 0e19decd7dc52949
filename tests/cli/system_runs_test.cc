// SPDX-License-Identifier: Apache-2.0
// Command lines of other systems train as these do: the losses, rates and norms that
// testdata/system_runs/make_runs.py wrote down, step by step, whatever the line leaves unsaid. Of
// transformers it is its own Trainer (with a DeepSpeed file's values, Accelerate's and PEFT, too),
// of FlagAI and Colossal-AI a loop over their schedulers.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/cli/cli_runs.h"

namespace tessera {
namespace {

class SystemRunsTest : public CliRuns {
 protected:
  const std::string given_ = "tests/cli/testdata/system_runs";

  // The words that each system's lines have before those of the run.
  std::vector<std::string> Begin(const std::string& system) {
    std::vector<std::string> line = {"train", given_ + "/model"};
    const std::string data = given_ + "/train.json";
    if (system == "Hugging Face") {
      line = {"train",
              "--model_name_or_path",
              given_ + "/model",
              "--train_file",
              data,
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
    } else if (system == "FlagAI") {
      line.insert(line.end(), {"--data", data, "--save_dir", Path("run"), "--log_interval", "1"});
    } else {
      line.insert(line.end(), {"--data", data, "--out", Path("run"), "--log-interval", "1"});
    }
    if (system != "Hugging Face") line.insert(line.end(), {"--seq-len", "16"});
    // What the recorded runs have besides: data in their order.
    line.insert(line.end(), {"--shuffle=false", "--threads", "1"});
    return line;
  }
};

TEST_F(SystemRunsTest, LossesAreTheSystems) {
  const auto runs = nlohmann::json::parse(Read(given_ + "/runs.json"));
  ASSERT_GE(runs.size(), 22u);
  for (const auto& run : runs) {
    const std::string system = run["system"];
    std::filesystem::remove_all(Path("run"));
    std::vector<std::string> line = Begin(system);
    for (const auto& [name, text] : run["files"].items()) {
      std::ofstream(Path(name)) << text.get<std::string>();
    }
    for (const std::string word : run["line"]) {
      const bool is_file = run["files"].contains(word);
      line.push_back(is_file                      ? Path(word)
                     : word.starts_with("MODEL/") ? given_ + "/model" + word.substr(5)
                                                  : word);
    }
    const std::string what = system + ": " + run["line"].dump();
    const std::string said = Output(line);
    EXPECT_NE(said.find("defaults: " + system + "'s\n"), std::string::npos) << what << said;
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
