// SPDX-License-Identifier: Apache-2.0
// Prompts that a run continues at its evaluations: every family that writes, on every layout alike.
#include <gtest/gtest.h>

#include "base/file.h"
#include "core/thread_communicator.h"
#include "dist/mesh/mesh.h"
#include "models/hub/save_model.h"
#include "nlohmann/json.hpp"
#include "train/testing/task_runs.h"

namespace tessera::train {
namespace {

class SampledTextsTest : public TaskRuns {
 protected:
  static void TrainOnRanks(const RunConfig& config, int ranks) {
    RunRanks(ranks, [&](const Group& world) {
      const auto mesh = MakeMesh(config, world);
      if (!mesh.ok()) throw std::runtime_error(Message(mesh.status()));
      auto setup = PrepareRun(config, *mesh);
      if (!setup.ok()) throw std::runtime_error(Message(setup.status()));
      Trainer trainer(setup->config, *setup->model, setup->data, *mesh);
      const auto result = trainer.Train({.output = nullptr});
      if (!result.ok()) throw std::runtime_error(Message(result.status()));
    });
  }
};

TEST_F(SampledTextsTest, EveryFamilyWritesOnEveryLayout) {
  std::string text;
  std::string chats;
  for (int i = 0; i < 300; ++i) text += Concat("one two three ", i % 3, " four five. ");
  for (int i = 0; i < 60; ++i) {
    chats += Concat("{\"prompt\": \"say ", i % 5, "\", \"response\": \"one two three\"}\n");
  }
  struct Case {
    const char* model;
    const char* tokenizer;
    const char* overrides;
  };
  const Case cases[] = {
      {"gpt-tiny", "", "n_embd=16,n_layer=2,n_head=2"},
      {"t5-mini", "t5", kSmallT5},
      {"glm-tiny", "glm",
       "hidden_size=16,num_layers=2,num_attention_heads=2,max_sequence_length=64"},
      {"chatglm-tiny", "chatglm",
       "hidden_size=16,num_layers=2,num_attention_heads=2,inner_hidden_size=32"}};
  struct Layout {
    const char* name;
    int ranks;
    void (*set)(RunConfig& config);
  };
  const Layout layouts[] = {
      {"data", 2, [](RunConfig& c) { c.batch_size = 2; }},
      {"sharded", 2, [](RunConfig& c) { c.batch_size = 2, c.zero = 3; }},
      {"split", 2, [](RunConfig& c) { c.tp = 2, c.sequence_parallel = true; }},
      {"stages", 2, [](RunConfig& c) { c.pp = 2; }},
  };
  for (const Case& c : cases) {
    RunConfig config = Config(c.model, Put("text.txt", text));
    config.tokenizer = *c.tokenizer == 0 ? "byte" : std::string(kTokenizers) + c.tokenizer;
    config.config_overrides = c.overrides;
    config.out = Path(c.model);
    config.batch_size = 4;
    config.max_steps = 6;
    config.eval_interval = 3;
    config.eval_batches = 1;
    config.sample_prompts = {"one two", "three"};
    config.sample_tokens = 8;
    if (std::string(c.tokenizer) == "chatglm") {
      config.data = {Put("chat.jsonl", chats)};
      config.options["max_source_length"] = 24;
      config.options["max_target_length"] = 24;
    } else {
      config.seq_len = 32;
    }
    Train(config);
    const std::string alone = *ReadFile(config.out + "/samples.jsonl");
    EXPECT_EQ(std::count(alone.begin(), alone.end(), '\n'), 2) << alone;
    ExpectContains(alone, "\"samples\":[\"  one two | ");
    ExpectContains(alone, "\"  three | ");
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(Concat(c.model, ", ", layout.name));
      RunConfig shared = config;
      layout.set(shared);
      shared.out += layout.name;
      TrainOnRanks(shared, layout.ranks);
      EXPECT_EQ(*ReadFile(shared.out + "/samples.jsonl"), alone);
    }
  }
}

TEST_F(SampledTextsTest, WhatCannotBeWrittenIsRefusedBeforeTheRun) {
  RunConfig config = Config("gpt-tiny", Put("text.txt", std::string(4000, 'x')));
  config.tokenizer = "byte";
  config.config_overrides = "n_positions=16,n_embd=16,n_layer=1,n_head=2";
  config.sample_prompts = {"a long prompt"};
  config.sample_tokens = 8;
  ExpectContains(Failure(config),
                 "sample_prompts: 'a long prompt' has 13 tokens, with 8 new ones (sample_tokens) "
                 "more than the model's 16 positions");
  config.sample_prompts = {"a"};
  config.val_fraction = 0;
  ExpectContains(Failure(config), "sample_prompts needs validation data");
  RunConfig labels = ReviewRun();
  labels.sample_prompts = {"good"};
  ExpectContains(Failure(labels), "does not generate");
}

TEST_F(SampledTextsTest, EndsOfTheFolderCount) {
  RunConfig config = Config("gpt-tiny", Put("text.txt", std::string(4000, 'x')));
  config.tokenizer = "byte";
  config.config_overrides = "n_positions=16,n_embd=16,n_layer=1,n_head=2";
  RunSetup setup;
  Train(config, &setup);
  ASSERT_TRUE(models::SaveModel(*setup.model, Path("model"), setup.tokenizer.get()).ok());
  RunConfig again = Config(Path("model"), Path("text.txt"));
  again.out = Path("again");
  again.sample_prompts = {"xx"};
  again.sample_tokens = 3;
  const auto samples = [&]() -> std::vector<std::string> {
    const auto opened = PrepareRun(again);
    EXPECT_TRUE(opened.ok()) << Message(opened.status());
    return opened.ok() ? opened->data.objective.samples(*opened->model)
                       : std::vector<std::string>();
  };
  EXPECT_EQ(samples(), std::vector<std::string>{"  xx | xxx"});
  Put("model/generation_config.json", R"({"eos_token_id": [7, 120], "do_sample": true})");
  EXPECT_EQ(samples(), std::vector<std::string>{"  xx | x"});
}

}  // namespace
}  // namespace tessera::train
