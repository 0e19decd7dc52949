// SPDX-License-Identifier: Apache-2.0
// tessera.hpp gives what the calls of tessera.h give, and throws where they fail.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "models/family.h"
#include "models/hub/save_model.h"
#include "nlohmann/json.hpp"
#include "runtime/tessera.hpp"
#include "tests/inference/small_models.h"
#include "tests/runtime/model_folders.h"

namespace tessera {
namespace {

using Ids = std::vector<int64_t>;

// A cross-encoder of one label.
std::string RerankerFolder() {
  const std::string folder = testing::TempDir() + "/reranker";
  std::filesystem::remove_all(folder);
  nlohmann::json config = SmallConfig("bert");
  config["architectures"] = {"BertForSequenceClassification"};
  config["num_labels"] = 1;
  const auto model = models::BuildModel(config, {.seed = 7});
  EXPECT_TRUE(model.ok()) << model.status();
  const Status saved = models::SaveModel(**model, folder);
  EXPECT_TRUE(saved.ok()) << saved;
  std::filesystem::copy(SmallModelFolder("bert") + "/vocab.txt", folder + "/vocab.txt");
  return folder;
}

// SmallModelFolder("gpt2") with a template.
std::string TalkingFolder() {
  const std::string folder = testing::TempDir() + "/talking";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(SmallModelFolder("gpt2"), folder);
  std::ofstream(folder + "/chat_template.jinja")
      << "{% for m in messages %}{{ m.role[0] ~ ':' ~ m.content ~ ' ' }}{% endfor %}a:";
  return folder;
}

int FailureOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const tsr::Failure& failure) {
    return failure.code();
  }
  return TSR_OK;
}

TEST(WrapperTest, TextsLongerThanTheirGuessAreWhole) {
  const tsr::Model model(TalkingFolder());
  const std::string text = "A text of more than sixteen bytes";
  const Ids ids = model.Tokenize(text);
  EXPECT_EQ(ids, Ids(text.begin(), text.end()));
  EXPECT_EQ(model.Detokenize(ids), text);
  EXPECT_EQ(model.Detokenize({}), "");
  const std::string talk = R"([{"role": "user", "content": "Hi"}])";
  const Ids prompt = model.ChatPrompt(talk);
  EXPECT_EQ(std::string(prompt.begin(), prompt.end()), "u:Hi a:");
  const nlohmann::json message = nlohmann::json::parse(model.ChatMessage(talk, {'Y', 'o'}));
  EXPECT_EQ(message["content"], "Yo");
  EXPECT_EQ(FailureOf([&] { model.ChatPrompt("7"); }), TSR_INVALID_ARGUMENT);
}

TEST(WrapperTest, BatchesStepsAndLogprobsAreThoseOfOneText) {
  const tsr::Model model(SmallModelFolder("gpt2"));
  tsr::Context context(model);
  tsr::GenerateOptions options;
  options->max_new_tokens = 4;
  options.Set("temperature", "0");
  const std::vector<Ids> prompts = {{72, 105}, {1, 2, 3}};
  std::vector<Ids> together(prompts.size());
  context.GenerateBatch(prompts, options, [&](const tsr_token& token) {
    if (token.id >= 0) together[static_cast<size_t>(token.sequence)].push_back(token.id);
    return true;
  });
  for (size_t i = 0; i < prompts.size(); ++i) {
    Ids alone;
    context.Generate(prompts[i], options, [&](const tsr_token& token) {
      if (token.id >= 0) alone.push_back(token.id);
      return true;
    });
    EXPECT_EQ(alone.size(), 4u);
    EXPECT_EQ(together[i], alone);
    std::vector<double> logits(static_cast<size_t>(model.Describe().vocab_size));
    EXPECT_EQ(context.Step(prompts[i], options, &logits), alone[0]);
    EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), alone[0]);
    Ids longer = prompts[i];
    longer.push_back(alone[0]);
    const std::vector<tsr_logprob> likeliest = context.Likeliest(longer, 2);
    ASSERT_EQ(likeliest.size(), 2 * longer.size());
    EXPECT_EQ(likeliest[2 * longer.size() - 2].id, alone[0]);
    EXPECT_EQ(likeliest[2 * longer.size() - 2].logprob, context.Logprobs(longer).back());
    EXPECT_TRUE(std::isnan(context.Logprobs(longer)[0]));
  }
  EXPECT_EQ(FailureOf([&] { options.Set("temperatur", "0"); }), TSR_INVALID_ARGUMENT);
  EXPECT_GT(tsr::Memory().peak, 0u);
}

TEST(WrapperTest, WhatAContextKeepsGoesThroughMemory) {
  const tsr::Model model(SmallModelFolder("gpt2"));
  auto keeping = tsr::Options<tsr_context_options>();
  keeping.kept_texts = 1;
  tsr::Context first(model, keeping);
  first.Step({1, 2, 3, 4});
  tsr::Context second(model, keeping);
  second.RestoreMemory(first.SaveMemory());
  EXPECT_EQ(second.Describe().kept_tokens, first.Describe().kept_tokens);
  EXPECT_GT(second.Describe().kept_tokens, 0);
  EXPECT_EQ(FailureOf([&] { second.RestoreMemory("no context"); }), TSR_DATA_LOSS);
}

TEST(WrapperTest, VectorsAndScoresOfTexts) {
  const tsr::Model encoder(SmallModelFolder("bert"));
  tsr::Context context(encoder);
  const int64_t size = encoder.Describe().hidden_size;
  const std::vector<float> vector = context.EmbedText("a b", size);
  auto options = tsr::Options<tsr_embed_options>();
  options.pooling = TSR_POOLING_OF_MODEL;
  options.normalise = 1;
  EXPECT_EQ(vector, context.EmbedText("a b", size, options));
  options.pooling = TSR_POOLING_FIRST;
  EXPECT_NE(vector, context.EmbedText("a b", size, options));
  const tsr::Model reranker(RerankerFolder());
  tsr::Context scorer(reranker);
  const std::vector<double> scores = scorer.Rerank("a", {"b c", "d", "b c"});
  ASSERT_EQ(scores.size(), 3u);
  EXPECT_EQ(scores[0], scores[2]);
  EXPECT_NE(scores[0], scores[1]);
}

}  // namespace
}  // namespace tessera
