// SPDX-License-Identifier: Apache-2.0
#include "train/tasks/text_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

using Texts = std::vector<std::string>;

nlohmann::ordered_json Scores(const Texts& written, const Texts& references) {
  const auto counts = CountTextScores(written, references);
  EXPECT_TRUE(counts.ok()) << Message(counts.status());
  EXPECT_EQ(counts->size(), NumTextScoreCounts());
  return FinishTextScores(*counts);
}

// The second text matches in 5 words of 6 and 6, 3 pairs of 5 and 5; the third in 4 words of 4, 2
// pairs of 3, and 3 words in order.
TEST(TextScoresTest, ByHand) {
  const auto scores =
      Scores({" the same text\n", "the cat sat on a mat", "one three two four", ""},
             {"the same text", "the cat sat on the mat", "three two one four", "none written"});
  EXPECT_GT(scores["bleu"].get<double>(), 30);
  EXPECT_LT(scores["bleu"].get<double>(), 90);
  EXPECT_NEAR(scores["rouge1"].get<double>(), (1 + 5.0 / 6 + 1) / 4, 1e-9);
  EXPECT_NEAR(scores["rouge2"].get<double>(), (1 + 3.0 / 5 + 1.0 / 3) / 4, 1e-9);
  EXPECT_NEAR(scores["rougeL"].get<double>(), (1 + 5.0 / 6 + 3.0 / 4) / 4, 1e-9);
  EXPECT_EQ(scores["exact_match"].get<double>(), 1.0 / 4);
}

TEST(TextScoresTest, ChineseIsComparedByCharacters) {
  const auto scores = Scores({"今天天气很好"}, {"今天天气很坏"});
  EXPECT_NEAR(scores["bleu"].get<double>(), 100 * std::pow(5.0 / 6 * 4 / 5 * 3 / 4 * 2 / 3, 0.25),
              1e-9);
  EXPECT_NEAR(scores["rouge1"].get<double>(), 5.0 / 6, 1e-9);
}

// However texts are dealt to batches and ranks.
TEST(TextScoresTest, CountsOfPartsAddUpToTheLastBit) {
  std::mt19937 random(3);
  const auto text = [&random] {
    std::string words;
    for (uint32_t n = 1 + random() % 12; n > 0; --n) {
      words += {static_cast<char>('a' + random() % 4), ' '};
    }
    return words;
  };
  for (int round = 0; round < 20; ++round) {
    Texts written(60);
    Texts references(60);
    std::generate(written.begin(), written.end(), text);
    std::generate(references.begin(), references.end(), text);
    const auto whole = Scores(written, references);
    std::vector<size_t> order(written.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::vector<double> sums(NumTextScoreCounts(), 0.0);
    for (size_t begin = 0; begin < order.size();) {
      const size_t end = std::min(begin + 1 + random() % 7, order.size());
      Texts some;
      Texts their_references;
      for (; begin < end; ++begin) {
        some.push_back(written[order[begin]]);
        their_references.push_back(references[order[begin]]);
      }
      const auto counts = CountTextScores(some, their_references);
      ASSERT_TRUE(counts.ok());
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += (*counts)[i];
    }
    EXPECT_EQ(FinishTextScores(sums), whole);
  }
}

TEST(TextScoresTest, WhatDoesNotFitIsRefused) {
  EXPECT_FALSE(CountTextScores({}, {}).ok());
  EXPECT_FALSE(CountTextScores({"a"}, {"a", "b"}).ok());
  EXPECT_EQ(FinishTextScores(std::vector<double>(NumTextScoreCounts(), 0.0))["rouge1"], 0.0);
}

}  // namespace
}  // namespace tessera::train
