// SPDX-License-Identifier: Apache-2.0
// The command file at a small size.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <tessera/base/file.h>

#include "nlohmann/json.hpp"

namespace tessera {
namespace {

TEST(RunGlueMrpcTest, TrainsAndJudgesAsMrpcIs) {
  const std::string root = testing::TempDir() + "/run_glue_mrpc";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root + "/words");
  std::ofstream(root + "/words/vocab.txt") << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\ndog\n"
                                              "sat\nran\n,\n\"\n";
  std::string rows = "sentence1,sentence2,label,idx\n";
  for (int i = 0; i < 64; ++i) {
    rows += std::string("\"the cat, ") + (i % 2 == 0 ? "sat" : "ran") + "\",the dog sat," +
            std::to_string(i % 2 == 0) + "," + std::to_string(i) + "\n";
  }
  std::ofstream(root + "/train.csv") << rows;
  std::ofstream(root + "/dev.csv") << rows;
  const std::string command =
      "TESSERA=tools/tessera sh examples/flows/run_glue_mrpc.sh bert-tiny " + root + " " + root +
      "/out --tokenizer " + root +
      "/words --config-overrides hidden_size=16,num_hidden_layers=1,num_attention_heads=2,"
      "intermediate_size=32,max_position_embeddings=128 --logging_steps 1 > " +
      root + "/log 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << *ReadFile(root + "/log");
  std::ifstream metrics(root + "/out/metrics.jsonl");
  nlohmann::json last;
  for (std::string line; std::getline(metrics, line);) last = nlohmann::json::parse(line);
  EXPECT_EQ(last["step"], 6);  // two of each epoch
  EXPECT_TRUE(last.contains("val_accuracy") && last.contains("val_f1")) << last;
  EXPECT_TRUE(std::filesystem::exists(root + "/out/metrics.csv"));
  EXPECT_TRUE(std::filesystem::exists(root + "/out/tensorboard"));
  EXPECT_TRUE(std::filesystem::exists(root + "/out/model/model.safetensors"));
}

}  // namespace
}  // namespace tessera
