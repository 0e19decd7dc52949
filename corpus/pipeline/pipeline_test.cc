// SPDX-License-Identifier: Apache-2.0
#include "corpus/pipeline/pipeline.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"

namespace tessera::corpus {
namespace {

using nlohmann::json;

json Plan(const json& steps) {
  const auto plan =
      PlanPipeline({{"input", "in.jsonl"}, {"folder", "out"}, {"steps", steps}}, "p", Steps());
  EXPECT_TRUE(plan.ok()) << Message(plan.status());
  json options = json::array();
  if (!plan.ok()) return options;
  for (const PlannedStep& step : *plan) options.push_back(step.options);
  return options;
}

std::string Wrong(const json& pipeline) {
  const auto plan = PlanPipeline(pipeline, "p", Steps());
  EXPECT_FALSE(plan.ok());
  return Message(plan.status());
}

TEST(PipelineTest, OutputsFlowIntoInputs) {
  const json plan = Plan({{{"step", "extract"}},
                          {{"step", "stats"}},
                          {{"step", "clean"}, {"min_tokens", 3}, {"output", "clean.jsonl"}},
                          {{"step", "stats"}, {"output", "s.html"}},
                          {{"step", "tokenize"}, {"tokenizer", "byte"}},
                          {{"step", "split"}}});
  EXPECT_EQ(plan[0], json({{"input", {"in.jsonl"}},
                           {"output", "out/01-extract.jsonl.zst"},
                           {"dropped", "out/01-extract.dropped.tsv"}}));
  EXPECT_EQ(plan[1]["output"], "out/02-stats.html");
  EXPECT_EQ(plan[2]["input"], json({"out/01-extract.jsonl.zst"}));
  EXPECT_EQ(plan[3]["input"], json({"clean.jsonl"}));
  EXPECT_EQ(plan[3]["drops"], json({"out/01-extract.dropped.tsv", "out/03-clean.dropped.tsv"}));
  EXPECT_EQ(plan[4]["output"], "out/05-tokenize");
  EXPECT_EQ(plan[5]["output"], "out/06-split-{}.jsonl.zst");
}

TEST(PipelineTest, WhatIsWrongIsNamedBeforeAnythingRuns) {
  const json one = json::array({{{"step", "clean"}}});
  EXPECT_EQ(Wrong(json::array()), "p: no JSON object");
  EXPECT_NE(Wrong({{"folder", "f"}, {"steps", one}, {"imput", 1}}).find("unknown key 'imput'"),
            std::string::npos);
  EXPECT_EQ(Wrong({{"folder", "f"}, {"steps", one}}), "p: steps[0]: input is missing");
  EXPECT_NE(Wrong({{"input", "i"}, {"steps", one}}).find("folder"), std::string::npos);
  const auto with = [](const json& second) {
    return json{{"input", "i"}, {"folder", "f"}, {"steps", {{{"step", "split"}}, second}}};
  };
  EXPECT_NE(Wrong(with({{"step", "cleam"}})).find("steps[1]: unknown step 'cleam'"),
            std::string::npos);
  EXPECT_EQ(Wrong(with({{"step", "clean"}})), "p: steps[1]: input is missing");
  EXPECT_NE(Wrong(with({{"step", "clean"}, {"input", "x"}, {"min_tokenz", 1}})).find("min_tokenz"),
            std::string::npos);
  EXPECT_NE(Wrong(with({{"step", "clean"}, {"input", "x"}, {"min_tokens", -1}})).find("steps[1]"),
            std::string::npos);
}

TEST(PipelineTest, RunsOnceAndGoesOnFromWhatChanged) {
  const std::string root = testing::TempDir() + "/pipeline";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root);
  {
    std::ofstream in(root + "/in.jsonl");
    for (int i = 0; i < 50; ++i) {
      in << json({{"id", i},
                  {"text", "document number " + std::to_string(i % 40) +
                               " has a few words of its own " + std::to_string(i % 40)}})
         << "\n";
    }
  }
  json pipeline = {{"input", root + "/in.jsonl"},
                   {"folder", root + "/out"},
                   {"steps",
                    {{{"step", "clean"}, {"min_tokens", 2}, {"min_characters", 2}},
                     {{"step", "dedup"}, {"by", "document"}},
                     {{"step", "shuffle"}},
                     {{"step", "stats"}},
                     {{"step", "tokenize"}, {"tokenizer", "byte"}, {"seq_len", 16}}}}};
  const auto run = [&] {
    std::ofstream(root + "/p.json") << pipeline;
    std::vector<std::string> said;
    const auto counts = RunPipeline(
        root + "/p.json", Steps(), {.say = [&](const std::string& line) { said.push_back(line); }});
    EXPECT_TRUE(counts.ok()) << Message(counts.status());
    EXPECT_EQ(said.size(), 5u);
    return counts.ok() ? *counts : Counts();
  };
  EXPECT_EQ(run(), (Counts{{"in", 50}, {"out", 40}}));
  for (const char* name : {"05-tokenize.bin", "05-tokenize.idx", "04-stats.html",
                           "02-dedup.dropped.tsv", "03-shuffle.jsonl.zst"}) {
    EXPECT_TRUE(PathExists(root + "/out/" + name)) << name;
  }
  EXPECT_NE(ReadFile(root + "/out/04-stats.html")->find("duplicate_document"), std::string::npos);
  const auto time = [&](const char* name) {
    return std::filesystem::last_write_time(root + "/out/" + name);
  };
  const auto cleaned = time("01-clean.jsonl.zst"), shuffled = time("03-shuffle.jsonl.zst");
  EXPECT_EQ(run(), (Counts{{"in", 50}, {"out", 40}}));
  EXPECT_EQ(time("03-shuffle.jsonl.zst"), shuffled);
  pipeline["steps"][2]["seed"] = 5;
  run();
  EXPECT_EQ(time("01-clean.jsonl.zst"), cleaned);
  EXPECT_NE(time("03-shuffle.jsonl.zst"), shuffled);
}

}  // namespace
}  // namespace tessera::corpus
