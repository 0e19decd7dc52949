// SPDX-License-Identifier: Apache-2.0
// The splitters of known patterns against the regular expressions that they stand for.
#include "data/tokenizer/known_split.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "core/regex.h"

namespace tessera::data {
namespace {

using Matches = std::vector<std::pair<size_t, size_t>>;

template <typename FindAll>
Matches MatchesOf(FindAll find_all) {
  Matches matches;
  find_all([&](size_t begin, size_t end) { matches.emplace_back(begin, end); });
  return matches;
}

// Of any category. The tables have a later version of Unicode than Oniguruma may have, where only
// characters differ that this one does not know.
void AppendAnyCharacter(std::mt19937_64* random, std::string* text) {
  static const auto* const unassigned = new Regex(*Regex::Compile("\\p{Cn}"));
  constexpr uint32_t kEnds[] = {0x80, 0x600, 0x3100, 0x10000, 0x20000, 0x110000};
  std::string character;
  while (true) {
    const auto c = static_cast<char32_t>((*random)() % kEnds[(*random)() % std::size(kEnds)]);
    if (c >= 0xD800 && c < 0xE000) continue;
    character.clear();
    AppendUtf8(c, &character);
    if (MatchesOf([&](const auto& f) { unassigned->FindAll(character, f); }).empty()) break;
  }
  *text += character;
}

std::string RandomText(std::mt19937_64* random) {
  static const std::vector<std::string> kParts = {
      "'s",     "'S",     "'\u017F", "'ll",        "'LL",     "'lL",    "'Re",    "'ve",
      "'VE",    "'m",     "'D",      "'t",         "'T",      "'l",     "'r",     "''",
      " '",     "\u212A", "\u017F",  "AB",         "aB",      "Ab",     "\u01C5", "\u02B0",
      "\u00AA", "\u4E2D", "a\u0301", "\u0301",     "A\u0301", "1",      "12",     "1234",
      "\u0663", "\u00BD", "\r\n",    "\n\n",       "\n/",     "!\n/",   "!",      "...",
      "/",      "  ",     "   ",     "\t",         "\u3000",  "\u00A0", "\u2028", "\u0085",
      "!?",     "_",      "$",       "#abc",       "\u20AC",  "\u203F", "\u3042", "\u30FC",
      "\u9FA5", "\u9FA6", "\u200D",  "\U000E0100", "\u24D0",  "\u2167", "\uFB05", "\U0001F600",
      "the",    " word",  " ",       "'",          "a",       "Z"};
  std::string text;
  for (size_t n = (*random)() % 30; n > 0; --n) {
    if ((*random)() % 4 == 0) {
      AppendAnyCharacter(random, &text);
    } else {
      text += kParts[(*random)() % kParts.size()];
    }
  }
  return text;
}

class KnownSplits : public testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Patterns, KnownSplits, testing::ValuesIn(KnownSplitPatterns()),
                         [](const auto& param) { return std::to_string(param.index); });

TEST_P(KnownSplits, EqualTheirRegularExpressions) {
  const KnownSplit known = FindKnownSplit(GetParam());
  ASSERT_NE(known, nullptr);
  const auto regex = Regex::Compile(GetParam());
  ASSERT_TRUE(regex.ok()) << regex.status();
  std::mt19937_64 random(7);
  for (int i = 0; i < 4000; ++i) {
    const std::string text = i == 0 ? "" : RandomText(&random);
    ASSERT_EQ(MatchesOf([&](const auto& f) { known(text, f); }),
              MatchesOf([&](const auto& f) { regex->FindAll(text, f); }))
        << text;
  }
}

TEST(FindKnownSplitTest, KnowsPatternsByTheirText) {
  EXPECT_EQ(FindKnownSplit("\\p{L}+"), nullptr);
  EXPECT_EQ(FindKnownSplit(""), nullptr);
  // As DeepSeek's file writes its newlines.
  std::string pattern(KnownSplitPatterns().back());
  for (size_t at; (at = pattern.find("\\r\\n")) != std::string::npos;)
    pattern.replace(at, 4, "\r\n");
  EXPECT_EQ(FindKnownSplit(pattern), FindKnownSplit(KnownSplitPatterns().back()));
}

}  // namespace
}  // namespace tessera::data
