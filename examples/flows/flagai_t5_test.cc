// SPDX-License-Identifier: Apache-2.0
// The program at a small size: it learns to answer, stops where its epochs end, and names a file
// that is not there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <tessera/base/file.h>

#include "nlohmann/json.hpp"

namespace tessera {
namespace {

int RunFlow(const std::string& settings, const std::string& log) {
  return std::system(("examples/flows/flagai_t5 " + settings + " > " + log + " 2>&1").c_str());
}

TEST(FlagAiT5Test, TrainsOnItsOwnPairs) {
  const std::string root = testing::TempDir() + "/flagai_t5";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root);
  std::ofstream source(root + "/src.txt"), target(root + "/tgt.txt");
  for (int i = 0; i < 80; ++i) {
    source << (i % 2 == 0 ? "yes\n" : "no\n");
    target << (i % 2 == 0 ? "a man and a dog are here\n" : "two women go to the old house\n");
  }
  source.close();
  target.close();
  nlohmann::json settings = {
      {"env_type", "pytorch"},
      {"model_name", "t5-mini"},
      {"tokenizer", "data/tokenizer/testdata/sentence_piece/t5"},
      {"config_overrides",
       "d_model=16,d_kv=8,d_ff=32,num_layers=1,num_decoder_layers=1,num_heads=2,dropout_rate=0"},
      {"src_file", root + "/src.txt"},
      {"tgt_file", root + "/tgt.txt"},
      {"batch_size", 8},
      {"gradient_accumulation_steps", 1},
      {"lr", 1e-2},
      {"weight_decay", 1e-3},
      {"epochs", 10},
      {"log_interval", 10},
      {"eval_interval", 10000},
      {"save_interval", 50},
      {"save_dir", root + "/checkpoints"}};
  std::ofstream(root + "/settings.json") << settings.dump();
  ASSERT_EQ(RunFlow(root + "/settings.json", root + "/log"), 0) << *ReadFile(root + "/log");
  std::ifstream rows(root + "/checkpoints/metrics.jsonl");
  nlohmann::json last;
  for (std::string line; std::getline(rows, line);) last = nlohmann::json::parse(line);
  EXPECT_EQ(last["step"], 90);  // 72 pairs, ten times
  EXPECT_LT(last["val_loss"].get<double>(), 1.0);
  EXPECT_TRUE(std::filesystem::exists(root + "/checkpoints/model/spiece.model"));
  EXPECT_TRUE(std::filesystem::exists(root + "/checkpoints/checkpoint-90"));
  const auto saved = nlohmann::json::parse(*ReadFile(root + "/checkpoints/config.json"));
  EXPECT_EQ(saved["src_file"], root + "/src.txt");
  settings["tgt_file"] = root + "/none.txt";
  std::ofstream(root + "/settings.json") << settings.dump();
  EXPECT_NE(RunFlow(root + "/settings.json", root + "/log"), 0);
  EXPECT_NE(ReadFile(root + "/log")->find("none.txt"), std::string::npos);
}

}  // namespace
}  // namespace tessera
