// SPDX-License-Identifier: Apache-2.0
#include "data/text_metrics/bleu.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/json_text.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using nlohmann::json;

BleuOptions OptionsOf(const std::string& tokenize, bool lower_case) {
  return {.tokenizer = tokenize == "zh" ? BleuTokenizer::kZh : BleuTokenizer::k13a,
          .lower_case = lower_case};
}

// What sacrebleu computes; see make_bleu_goldens.py.
TEST(BleuTest, ScoresAreThoseOfSacreBleu) {
  const auto goldens = ReadJsonFile("data/text_metrics/testdata/bleu.json");
  ASSERT_TRUE(goldens.ok()) << Message(goldens.status());
  int positive = 0;
  for (const json& golden : (*goldens)["cases"]) {
    const json& references = (*goldens)["references"][golden["references"].get<std::string>()];
    const auto bleu = CorpusBleu((*goldens)["outputs"][golden["outputs"].get<size_t>()], references,
                                 OptionsOf(golden["tokenize"], golden["lower_case"]));
    ASSERT_TRUE(bleu.ok()) << Message(bleu.status());
    EXPECT_NEAR(bleu->score, golden["score"].get<double>(), 1e-9);
    for (size_t n = 0; n < 4; ++n) {
      EXPECT_NEAR(bleu->precisions[n], golden["precisions"][n].get<double>(), 1e-9);
    }
    EXPECT_NEAR(bleu->brevity_penalty, golden["bp"].get<double>(), 1e-12);
    EXPECT_EQ(bleu->output_length, golden["output_length"].get<int64_t>());
    EXPECT_EQ(bleu->reference_length, golden["reference_length"].get<int64_t>());
    positive += bleu->score > 0;
  }
  EXPECT_GT(positive, 40);
}

TEST(BleuTest, TokensAreThoseOfSacreBleu) {
  const auto goldens = ReadJsonFile("data/text_metrics/testdata/bleu.json");
  ASSERT_TRUE(goldens.ok());
  for (const json& golden : (*goldens)["tokens"]) {
    for (const char* tokenize : {"13a", "zh"}) {
      EXPECT_EQ(TokenizeForBleu(golden["text"].get<std::string>(), OptionsOf(tokenize, false)),
                golden[tokenize].get<std::string>());
    }
  }
}

// Quotation marks and dashes, which sacreBLEU's `zh` sets apart, make no text Chinese.
TEST(BleuTest, ReferencesChooseTheTokenizer) {
  const auto counts = [](const std::vector<std::string>& outputs,
                         const std::vector<std::string>& references, BleuTokenizer tokenizer) {
    const auto bleu = CorpusBleu(outputs, {references}, {.tokenizer = tokenizer});
    EXPECT_TRUE(bleu.ok());
    std::vector<int64_t> all(bleu->matches.begin(), bleu->matches.end());
    all.insert(all.end(), bleu->totals.begin(), bleu->totals.end());
    all.insert(all.end(), {bleu->output_length, bleu->reference_length});
    return all;
  };
  const std::vector<std::string> western = {"“Zwei – drei” Männer sind hier.",
                                            "“Zwei – vier” Männer sind hier: 好。"};
  const std::vector<std::string> chinese = {"今天天气很好，去公园。", "GPT 今天，， &quot;"};
  std::vector<int64_t> sum = counts({western[1]}, {western[0]}, BleuTokenizer::k13a);
  EXPECT_NE(sum, counts({western[1]}, {western[0]}, BleuTokenizer::kZh));
  EXPECT_EQ(sum, counts({western[1]}, {western[0]}, BleuTokenizer::kByReference));
  // What was written does not choose: here it holds nothing Chinese.
  const auto all_western = counts({"，，“&quot;"}, {chinese[0]}, BleuTokenizer::kZh);
  EXPECT_NE(all_western, counts({"，，“&quot;"}, {chinese[0]}, BleuTokenizer::k13a));
  EXPECT_EQ(all_western, counts({"，，“&quot;"}, {chinese[0]}, BleuTokenizer::kByReference));
  const auto zh = counts({chinese[1]}, {chinese[0]}, BleuTokenizer::kZh);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += zh[i];
  EXPECT_EQ(
      sum, counts({western[1], chinese[1]}, {western[0], chinese[0]}, BleuTokenizer::kByReference));
}

// By hand: 5 words of 6, 3 pairs of 5, 2 triples of 4, one of 3 in fours.
TEST(BleuTest, ByHand) {
  const auto bleu = CorpusBleu({"the cat sat on a mat"}, {{"the cat sat on the mat"}});
  ASSERT_TRUE(bleu.ok());
  EXPECT_EQ(bleu->matches, (std::array<int64_t, 4>{5, 3, 2, 1}));
  EXPECT_EQ(bleu->totals, (std::array<int64_t, 4>{6, 5, 4, 3}));
  EXPECT_NEAR(bleu->score, 100 * std::pow(5.0 / 6 * 3 / 5 * 2 / 4 * 1 / 3, 0.25), 1e-9);
}

TEST(BleuTest, NumbersThatDiffer) {
  EXPECT_FALSE(CorpusBleu({}, {{}}).ok());
  EXPECT_FALSE(CorpusBleu({"a"}, {}).ok());
  EXPECT_FALSE(CorpusBleu({"a"}, {{"a", "b"}}).ok());
}

}  // namespace
}  // namespace tessera::data
