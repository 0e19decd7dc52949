// SPDX-License-Identifier: Apache-2.0
// The flow on a few chats, by a DeepSpeed file: two ranks with ZeRO-2 and float16, then one that
// continues.
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

class ChatGlmFlowTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/chatglm_flow";
    fs::remove_all(root_);
    fs::create_directories(root_);
    std::ofstream chats(root_ + "/chats.json");
    for (int i = 0; i < 32; ++i) {
      const std::string shop = std::to_string(i % 4);
      chats << nlohmann::json({{"content", "what does shop " + shop + " sell?"},
                               {"summary", i % 2 == 0 ? "bread and milk" : "books"},
                               {"history", nlohmann::json::array()}})
                   .dump()
            << "\n";
    }
    std::ofstream(root_ + "/ds.json") << nlohmann::json(
        {{"train_micro_batch_size_per_gpu", 2},
         {"gradient_accumulation_steps", 2},
         {"gradient_clipping", 1.0},
         {"steps_per_print", 10},
         {"fp16", {{"enabled", true}, {"loss_scale", 0}, {"initial_scale_power", 16}}},
         {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 2e-3}, {"weight_decay", 0.0}}}}},
         {"zero_optimization", {{"stage", 2}, {"offload_optimizer", {{"device", "cpu"}}}}}});
  }

  std::string Run(int ranks, int steps, const std::vector<std::string>& more = {}) {
    std::vector<std::string> flags = {"--model",
                                      "chatglm-tiny",
                                      "--tokenizer",
                                      kTokenizer,
                                      "--train_file",
                                      root_ + "/chats.json",
                                      "--deepspeed",
                                      root_ + "/ds.json",
                                      "--out",
                                      root_ + "/out",
                                      "--prompt_column",
                                      "content",
                                      "--response_column",
                                      "summary",
                                      "--history_column",
                                      "history",
                                      "--max_source_length",
                                      "24",
                                      "--max_target_length",
                                      "24",
                                      "--logging_steps",
                                      "5",
                                      "--save_steps",
                                      "20",
                                      "--max_steps",
                                      std::to_string(steps)};
    flags.insert(flags.end(), more.begin(), more.end());
    Process run({{.ranks = ranks, .arguments = flags, .program = "examples/flows/chatglm_engine"}},
                root_ + "/log");
    EXPECT_EQ(run.ExitCode(), 0) << run.Errors();
    return run.Output();
  }

  static std::vector<double> Losses(const std::string& output) {
    std::vector<double> losses;
    const std::regex line("step (\\d+): loss ([0-9.e-]+)");
    for (std::sregex_iterator it(output.begin(), output.end(), line), end; it != end; ++it) {
      losses.push_back(std::stod((*it)[2]));
    }
    return losses;
  }

  static constexpr char kTokenizer[] = "data/tokenizer/testdata/sentence_piece/chatglm";
  std::string root_;
};

TEST_F(ChatGlmFlowTest, LearnsOnTwoRanksAndGoesOnWithOne) {
  const std::string first = Run(2, 40);
  EXPECT_NE(first.find("32 chats, from the beginning"), std::string::npos) << first;
  EXPECT_NE(first.find("warning: 'steps_per_print' means nothing to an engine"), std::string::npos);
  const std::vector<double> losses = Losses(first);
  ASSERT_EQ(losses.size(), 8u) << first;
  EXPECT_LT(losses.back(), 0.3 * losses.front()) << first;
  const std::string rest = Run(1, 50);
  EXPECT_NE(rest.find("goes on from " + root_ + "/out/checkpoint-40"), std::string::npos) << rest;
  ASSERT_EQ(Losses(rest).size(), 2u) << rest;
  EXPECT_LT(Losses(rest)[0], 0.3 * losses[0]);
  EXPECT_TRUE(fs::exists(root_ + "/out/model/model.safetensors"));
  EXPECT_TRUE(fs::exists(root_ + "/out/model/ice_text.model"));
}

}  // namespace
}  // namespace tessera
