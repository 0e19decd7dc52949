// SPDX-License-Identifier: Apache-2.0
// Generation under a grammar (models/generation/grammar/).
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer/byte_tokenizer.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "models/generation/grammar/json_grammar.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::ordered_json;
using Ids = std::vector<int64_t>;

constexpr int64_t kEnd = 256;

std::unique_ptr<Model> ByteModel() {
  const nlohmann::json config = {
      {"model_type", "gpt2"}, {"vocab_size", 260}, {"n_positions", 128},      {"n_embd", 10},
      {"n_layer", 2},         {"n_head", 2},       {"initializer_range", 0.6}};
  auto model = BuildModel(config, {.seed = 3});
  EXPECT_TRUE(model.ok()) << Message(model.status());
  return *std::move(model);
}

class GrammarGenerationTest : public testing::Test {
 protected:
  GenerateOptions Under(const std::string& schema) {
    auto grammar = JsonSchemaGrammar(ordered_json::parse(schema), "schema");
    EXPECT_TRUE(grammar.ok()) << Message(grammar.status());
    auto tokens = TokenGrammar::Of(*std::move(grammar), Vocabulary::Of(tokenizer_));
    EXPECT_TRUE(tokens.ok()) << Message(tokens.status());
    return {.tokenizer = &tokenizer_, .grammar = *tokens};
  }

  std::vector<GenerationResult> Write(const std::vector<Ids>& prompts,
                                      const GenerationConfig& config,
                                      const GenerateOptions& options) {
    auto results = Generate(*model_, prompts, config, options);
    EXPECT_TRUE(results.ok()) << Message(results.status());
    return results.ok() ? *std::move(results) : std::vector<GenerationResult>(prompts.size());
  }

  const data::ByteTokenizer tokenizer_;
  const std::unique_ptr<Model> model_ = ByteModel();
  const std::string schema_ =
      R"({"type":"object","properties":{"a":{"type":"integer","minimum":10,"maximum":99},)"
      R"("b":{"enum":["x","yy"]}},"required":["a","b"],"additionalProperties":false})";
};

bool Fits(const std::string& text) {
  const ordered_json value = ordered_json::parse(text, nullptr, false);
  return value.is_object() && value.size() == 2 && value.contains("a") && value.contains("b") &&
         value["a"].is_number_integer() && value["a"] >= 10 && value["a"] <= 99 &&
         (value["b"] == "x" || value["b"] == "yy");
}

TEST_F(GrammarGenerationTest, TextsFitAndEndWithAnEndToken) {
  const GenerateOptions options = Under(schema_);
  GenerationConfig config = {.max_new_tokens = 100};
  config.eos_token_ids = {kEnd};
  for (const bool sample : {false, true}) {
    config.do_sample = sample;
    config.top_k = sample ? 5 : 0;
    for (int seed = 0; seed < 5; ++seed) {
      config.seed = seed;
      const GenerationResult result = Write({{72, 105}}, config, options)[0];
      EXPECT_TRUE(Fits(result.text)) << result.text;
      EXPECT_EQ(result.end, GenerationResult::End::kEndOfText);
      EXPECT_EQ(result.ids.back(), kEnd);
    }
  }
}

TEST_F(GrammarGenerationTest, TheModelChoosesAmongWhatFits) {
  GenerationConfig config = {.max_new_tokens = 100};
  config.eos_token_ids = {kEnd};
  config.logit_bias = {{'9', 50}, {'y', 50}};
  EXPECT_NE(Write({{1}}, config, Under(schema_))[0].text.find("99"), std::string::npos);
}

TEST_F(GrammarGenerationTest, TheTextIsTheSameAmongOthers) {
  const GenerateOptions options = Under(schema_);
  GenerationConfig config = {.max_new_tokens = 60, .do_sample = true, .temperature = 2};
  config.eos_token_ids = {kEnd};
  std::vector<Ids> prompts;
  for (int64_t i = 0; i < 8; ++i) prompts.push_back(Ids(static_cast<size_t>(i + 1), i + 3));
  const auto together = Write(prompts, config, options);
  EXPECT_EQ(Write({prompts[0]}, config, options)[0].ids, together[0].ids);
  for (const GenerationResult& result : together) EXPECT_TRUE(Fits(result.text)) << result.text;
}

TEST_F(GrammarGenerationTest, TheTextIsCompleteWithinTheLimit) {
  const std::string schema = R"({"type":"array","items":{"type":"string"}})";
  GenerationConfig config = {.do_sample = true, .temperature = 3};
  config.eos_token_ids = {kEnd};
  for (int64_t limit = 2; limit < 40; limit += 3) {
    config.max_new_tokens = limit;
    const GenerationResult result = Write({{1, 2}}, config, Under(schema))[0];
    EXPECT_TRUE(ordered_json::accept(result.text)) << result.text;
    EXPECT_EQ(result.end, GenerationResult::End::kEndOfText) << result.text;
  }
  // The last token completes the text, with end tokens and without.
  for (const Ids& ends : {Ids{kEnd}, Ids{}}) {
    GenerationConfig exact = {.max_new_tokens = 3};
    exact.eos_token_ids = ends;
    const GenerationResult whole = Write({{1, 2}}, exact, Under(R"({"const":"x"})"))[0];
    EXPECT_EQ(whole.text, "\"x\"");
    EXPECT_EQ(whole.ids.size(), 3u);
    EXPECT_EQ(whole.end, GenerationResult::End::kEndOfText);
  }
  // Not even an empty object of this schema fits into four tokens: a beginning of one is written.
  config.max_new_tokens = 4;
  const GenerationResult cut = Write({{1, 2}}, config, Under(schema_))[0];
  EXPECT_EQ(cut.end, GenerationResult::End::kLength);
  EXPECT_EQ(cut.ids.size(), 4u);
}

TEST_F(GrammarGenerationTest, EndsWithoutAnEndToken) {
  const GenerationResult result = Write({{5}}, {.max_new_tokens = 100}, Under(schema_))[0];
  EXPECT_TRUE(Fits(result.text)) << result.text;
  EXPECT_EQ(result.end, GenerationResult::End::kEndOfText);
}

TEST_F(GrammarGenerationTest, TheGrammarComesBeforeOtherSettings) {
  GenerationConfig config = {.max_new_tokens = 100, .min_new_tokens = 90};
  config.eos_token_ids = {kEnd};
  config.suppress_tokens = {'{', '}'};
  const GenerationResult result = Write({{5}}, config, Under(schema_))[0];
  EXPECT_TRUE(Fits(result.text)) << result.text;
  EXPECT_EQ(result.ids.back(), kEnd);
}

TEST_F(GrammarGenerationTest, StopStringsStillEndIt) {
  GenerationConfig config = {.max_new_tokens = 100};
  config.stop_strings = {"\"b\""};
  const GenerationResult result = Write({{5}}, config, Under(schema_))[0];
  EXPECT_EQ(result.end, GenerationResult::End::kStopString);
  EXPECT_EQ(result.text.find("\"b\""), std::string::npos);
}

TEST_F(GrammarGenerationTest, Refusals) {
  GenerateOptions options = Under(schema_);
  GenerationConfig beams = {.max_new_tokens = 9, .num_beams = 2};
  EXPECT_EQ(Message(Generate(*model_, {{1}}, beams, options).status()),
            "a grammar is not supported with num_beams above 1");
  options.tokenizer = nullptr;
  EXPECT_EQ(Message(Generate(*model_, {{1}}, {.max_new_tokens = 9}, options).status()),
            "a grammar needs a tokenizer");
}

}  // namespace
}  // namespace tessera::models
