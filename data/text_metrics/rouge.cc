// SPDX-License-Identifier: Apache-2.0
#include "data/text_metrics/rouge.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/utf8.h"
#include "data/tokenizer/bert_normalizer.h"

namespace tessera::data {
namespace {

using Tokens = std::vector<std::string>;

bool IsWordCharacter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool IsCjk(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0x3005, 0x3007},                                      // marks that stand for ideographs
      {0x3041, 0x309F},                                      // hiragana
      {0x30A1, 0x30FA}, {0x30FC, 0x30FF}, {0xFF66, 0xFF9D},  // katakana
      {0xAC00, 0xD7A3}};                                     // Hangul
  return IsBertIdeograph(c) ||
         std::any_of(std::begin(kRanges), std::end(kRanges),
                     [c](const auto& range) { return c >= range.first && c <= range.second; });
}

double FMeasure(int64_t common, size_t in_output, size_t in_reference) {
  if (common == 0) return 0;
  return 2 * static_cast<double>(common) / static_cast<double>(in_output + in_reference);
}

// In order, each as often as it occurs. The tokens of an n-gram are ended by blanks, which tokens
// do not hold.
std::vector<std::string> SortedNGrams(const Tokens& tokens, size_t n) {
  std::vector<std::string> grams;
  for (size_t begin = 0; begin + n <= tokens.size(); ++begin) {
    std::string gram;
    for (size_t i = begin; i < begin + n; ++i) gram += tokens[i] + ' ';
    grams.push_back(std::move(gram));
  }
  std::sort(grams.begin(), grams.end());
  return grams;
}

double NGramScore(const Tokens& output, const Tokens& reference, size_t n) {
  const auto ours = SortedNGrams(output, n);
  const auto theirs = SortedNGrams(reference, n);
  std::vector<std::string> common;
  std::set_intersection(ours.begin(), ours.end(), theirs.begin(), theirs.end(),
                        std::back_inserter(common));
  return FMeasure(std::ssize(common), ours.size(), theirs.size());
}

int64_t LongestCommonSubsequence(const Tokens& a, const Tokens& b) {
  // Of what was seen of `a` and the first j tokens of `b`.
  std::vector<int64_t> longest(b.size() + 1, 0);
  for (const std::string& token : a) {
    int64_t diagonal = 0;
    for (size_t j = 0; j < b.size(); ++j) {
      const int64_t above = longest[j + 1];
      longest[j + 1] = token == b[j] ? diagonal + 1 : std::max(above, longest[j]);
      diagonal = above;
    }
  }
  return longest.back();
}

}  // namespace

std::vector<std::string> TokenizeForRouge(std::string_view text) {
  const std::string line = LowerCased(text);
  Tokens tokens;
  bool in_word = false;
  for (size_t i = 0; i < line.size();) {
    const Utf8Char c = DecodeUtf8(line, i);
    const std::string character = line.substr(i, static_cast<size_t>(c.length));
    i += character.size();
    const bool goes_on = in_word;
    in_word = IsWordCharacter(c.code_point);
    if (in_word && goes_on) {
      tokens.back() += character;
    } else if (in_word || (c.valid && IsCjk(c.code_point))) {
      tokens.push_back(character);
    }
  }
  return tokens;
}

RougeScore Rouge(std::string_view output, std::string_view reference) {
  const Tokens ours = TokenizeForRouge(output);
  const Tokens theirs = TokenizeForRouge(reference);
  return {.rouge1 = NGramScore(ours, theirs, 1),
          .rouge2 = NGramScore(ours, theirs, 2),
          .rougeL = FMeasure(LongestCommonSubsequence(ours, theirs), ours.size(), theirs.size())};
}

}  // namespace tessera::data
