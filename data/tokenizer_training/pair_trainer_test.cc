// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer_training/pair_trainer.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tessera::data {
namespace {

// Counts all pairs anew for every merge.
LearntPairs Naive(const std::vector<CountedWord>& counted, const PairTrainerOptions& options) {
  std::map<std::string, int32_t> ids;
  LearntPairs learnt;
  const auto add = [&](const std::string& piece) {
    const auto [at, is_new] = ids.try_emplace(piece, static_cast<int32_t>(learnt.vocab.size()));
    if (is_new) learnt.vocab.push_back(piece);
    return at->second;
  };
  for (char c = 'a'; c <= 'z'; ++c) {
    bool used = false;
    for (const CountedWord& word : counted) used |= word.text.find(c) != std::string::npos;
    if (used) add(std::string(1, c));
  }
  std::vector<std::vector<int32_t>> words;
  for (const CountedWord& word : counted) {
    words.emplace_back();
    for (size_t i = 0; i < word.text.size(); ++i) {
      words.back().push_back(
          add((i == 0 ? "" : options.continuing_prefix) + std::string(1, word.text[i])));
    }
  }
  while (std::ssize(learnt.vocab) < options.vocab_size) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;  // neighbours that overlap count
    for (size_t w = 0; w < words.size(); ++w) {
      for (size_t i = 1; i < words[w].size(); ++i) {
        counts[{words[w][i - 1], words[w][i]}] += counted[w].count;
      }
    }
    int64_t most = 0;
    std::pair<int32_t, int32_t> best;
    for (const auto& [pair, count] : counts) {
      if (count > most) {
        most = count;
        best = pair;
      }
    }
    if (most < std::max<int64_t>(options.min_frequency, 1)) break;
    const std::string& tail = learnt.vocab[static_cast<size_t>(best.second)];
    const int32_t merged = add(learnt.vocab[static_cast<size_t>(best.first)] +
                               tail.substr(tail.starts_with(options.continuing_prefix)
                                               ? options.continuing_prefix.size()
                                               : 0));
    learnt.merges.push_back(best);
    for (std::vector<int32_t>& word : words) {
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        if (std::pair(word[i], word[i + 1]) != best) continue;
        word[i] = merged;
        word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  return learnt;
}

// Of letters that do not repeat side by side: there overlapping pairs are counted as Hugging Face's
// trainer counts them, which is not how a fresh count would.
std::vector<CountedWord> RandomWords(std::mt19937* random) {
  std::map<std::string, int64_t> words;
  for (int i = 0; i < 60; ++i) {
    std::string word;
    const int length = 1 + static_cast<int>((*random)() % 9);
    for (int k = 0; k < length; ++k) {
      char c = static_cast<char>('a' + (*random)() % 6);
      while (k > 0 && c == word.back()) c = static_cast<char>('a' + (*random)() % 6);
      word += c;
    }
    words[word] += 1 + static_cast<int64_t>((*random)() % 40);
  }
  std::vector<CountedWord> counted;
  for (const auto& [text, count] : words) counted.push_back({text, count});
  return counted;
}

TEST(PairTrainerTest, MergesAsCountingAnewDoes) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 40; ++round) {
    const std::vector<CountedWord> words = RandomWords(&random);
    const PairTrainerOptions options = {.vocab_size = 20 + static_cast<int64_t>(random() % 40),
                                        .min_frequency = static_cast<int64_t>(random() % 30),
                                        .continuing_prefix = round % 2 == 0 ? "" : "##"};
    const LearntPairs learnt = LearnPairs(words, options);
    const LearntPairs expected = Naive(words, options);
    ASSERT_EQ(learnt.vocab, expected.vocab);
    ASSERT_EQ(learnt.merges, expected.merges);
  }
}

TEST(PairTrainerTest, RareCharactersAreLeftOut) {
  const std::vector<CountedWord> words = {{"ab", 90}, {"axb", 9}, {"éa", 1}};
  const auto vocab = [&](double coverage) {
    return LearnPairs(words, {.vocab_size = 4, .character_coverage = coverage}).vocab;
  };
  EXPECT_EQ(vocab(1), (std::vector<std::string>{"a", "b", "x", "é"}));
  // 209 characters: é is one of them, x nine.
  EXPECT_EQ(vocab(0.99), (std::vector<std::string>{"a", "b", "x", "ab"}));
  EXPECT_EQ(vocab(0.95), (std::vector<std::string>{"a", "b", "ab"}));
}

}  // namespace
}  // namespace tessera::data
