// SPDX-License-Identifier: Apache-2.0
#include "corpus/dedup/shingles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "corpus/dedup/minhash.h"

namespace tessera::corpus {
namespace {

std::vector<uint64_t> Of(const std::string& text) {
  ShingleReader reader;
  std::vector<uint64_t> shingles;
  reader.Read(text, &shingles);
  return shingles;
}

std::vector<uint64_t> SetOf(const std::string& text) {
  std::vector<uint64_t> set = Of(text);
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
  return set;
}

TEST(ShinglesTest, WordsAreLowerCasedRunsOfLettersDigitsAndUnderscores) {
  const std::vector<uint64_t> plain = Of("the cat_1 sat on élan mat");
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_EQ(Of("The  CAT_1, «sat»\non...ÉLAN MAT!"), plain);
  EXPECT_NE(Of("the cat 1 sat on élan mat")[0], plain[0]);
  EXPECT_EQ(Of("one two three four").size(), 0u);
  EXPECT_EQ(Of("").size(), 0u);
  // The order counts, and where words end does.
  EXPECT_NE(Of("a b c d e"), Of("b a c d e"));
  EXPECT_NE(Of("ab c d e f"), Of("a bc d e f"));
  // A mark is no part of words: "i" and "stanbul" are two. Ideographs are letters.
  EXPECT_EQ(Of("İstanbul a b c"), Of("i stanbul a b c"));
  EXPECT_EQ(Of("世界,你好 a b c").size(), 1u);
  // Bytes that are not UTF-8 separate.
  EXPECT_EQ(Of("a\xFFt b c d"), Of("a t b c d"));
}

TEST(ShinglesTest, LongWordsAndLongTexts) {
  std::string text, shout;
  for (int i = 0; i < 3000; ++i) {
    const std::string word(static_cast<size_t>(1 + i % 23), static_cast<char>('a' + i % 26));
    text += word + " ";
    for (const char c : word) shout += static_cast<char>(c - 32);
    shout += i % 3 == 0 ? "\xE2\x80\x94" : "\n";
  }
  EXPECT_EQ(Of(text).size(), 2996u);
  EXPECT_EQ(Of(text), Of(shout));
}

TEST(ShinglesTest, SetsAreSorted) {
  std::mt19937_64 random(2);
  for (const size_t size : {0, 1, 2, 31, 33, 1000, 5000}) {
    std::vector<uint64_t> values(size);
    for (uint64_t& value : values) value = random() % 3 == 0 ? random() % 50 : random();
    std::vector<uint64_t> expected = values;
    std::sort(expected.begin(), expected.end());
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
    MakeSet(&values);
    EXPECT_EQ(values, expected);
  }
}

TEST(ShinglesTest, JaccardOfSets) {
  EXPECT_EQ(Jaccard({1, 2, 3}, {2, 3, 4}), 0.5);
  EXPECT_EQ(Jaccard({}, {}), 0);
  EXPECT_EQ(Jaccard({1}, {1}), 1);
  EXPECT_EQ(Jaccard(SetOf("a b c d e f"), SetOf("a b c d e g")), 1.0 / 3);
}

// The share of equal numbers is the similarity, within four standard deviations of 4096 trials.
TEST(MinHashTest, EstimatesJaccard) {
  const MinHash hash(4096);
  std::mt19937_64 random(1);
  std::vector<uint64_t> common(600), a(200), b(200);
  for (auto* set : {&common, &a, &b}) {
    for (uint64_t& x : *set) x = random();
  }
  a.insert(a.end(), common.begin(), common.end());
  b.insert(b.end(), common.begin(), common.end());
  std::vector<uint32_t> of_a(4096), of_b(4096);
  hash.Sign(a, of_a.data());
  hash.Sign(b, of_b.data());
  double same = 0;
  for (size_t i = 0; i < of_a.size(); ++i) same += of_a[i] == of_b[i];
  EXPECT_NEAR(same / 4096, 0.6, 0.031);
}

TEST(MinHashTest, IsTheSameOnEveryInstructionSet) {
  const MinHash hash(128);
  std::vector<uint64_t> shingles = Of("a b c d e f g h i j k l m n o p q r s t u v w x y z");
  std::vector<uint32_t> signature(128);
  hash.Sign(shingles, signature.data());
  // By the definition, for the first permutation's least.
  for (const uint32_t least : signature) EXPECT_LT(least, 0xFFFFFFFFu);
  std::reverse(shingles.begin(), shingles.end());
  std::vector<uint32_t> reversed(128);
  hash.Sign(shingles, reversed.data());
  EXPECT_EQ(signature, reversed);
  hash.Sign({}, signature.data());
  EXPECT_EQ(signature, std::vector<uint32_t>(128, 0xFFFFFFFFu));
}

TEST(MinHashTest, BandsMissOneOfTwoHundredAtMost) {
  for (const double threshold : {0.5, 0.8, 0.9, 1.0}) {
    const Bands bands = BandsFor(threshold, 128);
    EXPECT_LE(bands.bands * bands.rows, 128);
    EXPECT_LE(std::pow(1 - std::pow(threshold, bands.rows), bands.bands), 0.005) << threshold;
  }
  EXPECT_EQ(BandsFor(0.8, 128).rows, 6);
}

}  // namespace
}  // namespace tessera::corpus
