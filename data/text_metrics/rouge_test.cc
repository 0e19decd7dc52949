// SPDX-License-Identifier: Apache-2.0
#include "data/text_metrics/rouge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/json_text.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::string>;

// What rouge_score computes; see make_rouge_goldens.py.
TEST(RougeTest, ScoresAreThoseOfRougeScore) {
  const auto goldens = ReadJsonFile("data/text_metrics/testdata/rouge.json");
  ASSERT_TRUE(goldens.ok()) << Message(goldens.status());
  int positive = 0;
  for (const json& golden : (*goldens)["pairs"]) {
    const RougeScore score =
        Rouge(golden["output"].get<std::string>(), golden["reference"].get<std::string>());
    SCOPED_TRACE(golden.dump());
    EXPECT_NEAR(score.rouge1, golden["rouge1"].get<double>(), 1e-12);
    EXPECT_NEAR(score.rouge2, golden["rouge2"].get<double>(), 1e-12);
    EXPECT_NEAR(score.rougeL, golden["rougeL"].get<double>(), 1e-12);
    positive += score.rouge2 > 0 && score.rouge2 < score.rouge1;
  }
  EXPECT_GT(positive, 20);
}

TEST(RougeTest, TokensAreThoseOfRougeScore) {
  const auto goldens = ReadJsonFile("data/text_metrics/testdata/rouge.json");
  ASSERT_TRUE(goldens.ok()) << Message(goldens.status());
  ASSERT_FALSE((*goldens)["tokens"].empty());
  for (const json& golden : (*goldens)["tokens"]) {
    EXPECT_EQ(TokenizeForRouge(golden["text"].get<std::string>()), golden["tokens"].get<Tokens>());
  }
}

TEST(RougeTest, CjkCharactersAreTokens) {
  EXPECT_EQ(TokenizeForRouge("GPT-3有1750亿。"), (Tokens{"gpt", "3", "有", "1750", "亿"}));
  EXPECT_EQ(TokenizeForRouge("人々、テスト・한국어 𠀀"),
            (Tokens{"人", "々", "テ", "ス", "ト", "한", "국", "어", "𠀀"}));
  EXPECT_EQ(TokenizeForRouge("ab\xE4\xBB cd\xFF"
                             "e"),
            (Tokens{"ab", "cd", "e"}));
  // 4 characters of 6 and 5; 2 pairs of 5 and 4.
  const RougeScore score = Rouge("今天天气很好", "今天很好。吗");
  EXPECT_DOUBLE_EQ(score.rouge1, 8.0 / 11);
  EXPECT_DOUBLE_EQ(score.rouge2, 4.0 / 9);
  EXPECT_DOUBLE_EQ(score.rougeL, 8.0 / 11);
}

double FMeasure(double common, double in_output, double in_reference) {
  if (common == 0) return 0;
  const double precision = common / in_output;
  const double recall = common / in_reference;
  return 2 * precision * recall / (precision + recall);
}

double NaiveNGramScore(const Tokens& output, const Tokens& reference, size_t n) {
  const auto count = [n](const Tokens& tokens) {
    std::map<Tokens, int> grams;
    for (size_t i = 0; i + n <= tokens.size(); ++i) {
      ++grams[Tokens(tokens.begin() + static_cast<int64_t>(i),
                     tokens.begin() + static_cast<int64_t>(i + n))];
    }
    return grams;
  };
  auto in_reference = count(reference);
  int common = 0;
  for (const auto& [gram, times] : count(output)) common += std::min(times, in_reference[gram]);
  const auto grams_of = [n](const Tokens& tokens) {
    return std::max(static_cast<double>(tokens.size()) - static_cast<double>(n) + 1, 0.0);
  };
  return FMeasure(common, grams_of(output), grams_of(reference));
}

// Of the first i and j tokens, by the definition.
int NaiveLongest(const Tokens& a, const Tokens& b, size_t i, size_t j) {
  if (i == 0 || j == 0) return 0;
  if (a[i - 1] == b[j - 1]) return 1 + NaiveLongest(a, b, i - 1, j - 1);
  return std::max(NaiveLongest(a, b, i - 1, j), NaiveLongest(a, b, i, j - 1));
}

TEST(RougeTest, RandomTextsScoreAsTheDefinitionSays) {
  std::mt19937 random(5);
  const auto draw = [&random](uint32_t below) { return random() % below; };
  const auto joined = [](const Tokens& tokens) {
    std::string text;
    for (const std::string& token : tokens) text += token + " ";
    return text;
  };
  for (int round = 0; round < 300; ++round) {
    const uint32_t words = 1 + draw(5);
    Tokens texts[2];
    for (Tokens& text : texts) {
      text.resize(draw(10));
      for (std::string& word : text)
        word = std::string(1 + draw(2), static_cast<char>('a' + draw(words)));
    }
    const RougeScore score = Rouge(joined(texts[0]), joined(texts[1]));
    SCOPED_TRACE(joined(texts[0]) + "| " + joined(texts[1]));
    EXPECT_NEAR(score.rouge1, NaiveNGramScore(texts[0], texts[1], 1), 1e-12);
    EXPECT_NEAR(score.rouge2, NaiveNGramScore(texts[0], texts[1], 2), 1e-12);
    const int longest = NaiveLongest(texts[0], texts[1], texts[0].size(), texts[1].size());
    EXPECT_NEAR(score.rougeL,
                FMeasure(longest, static_cast<double>(texts[0].size()),
                         static_cast<double>(texts[1].size())),
                1e-12);
  }
}

}  // namespace
}  // namespace tessera::data
