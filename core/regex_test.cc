// SPDX-License-Identifier: Apache-2.0
#include "core/regex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace tessera {
namespace {

std::vector<std::string> Matches(const std::string& pattern, const std::string& text) {
  std::vector<std::string> found;
  Regex::Compile(pattern)->FindAll(
      text, [&](size_t begin, size_t end) { found.push_back(text.substr(begin, end - begin)); });
  return found;
}

using Strings = std::vector<std::string>;

TEST(RegexTest, FindsAll) {
  EXPECT_EQ(Matches("\\p{N}+", "a12b3"), (Strings{"12", "3"}));
  EXPECT_EQ(Matches("y", "abc"), Strings());
  EXPECT_EQ(Matches("x", ""), Strings());
  EXPECT_EQ(Message(Regex::Compile("a(b").status()),
            "regular expression: end pattern with unmatched parenthesis");
  EXPECT_EQ(Message(Regex::Compile("a\xFF").status()), "regular expression: not UTF-8 at byte 1");
}

// Right behind another match they are none.
TEST(RegexTest, MatchesMayBeEmpty) {
  EXPECT_EQ(Matches("x*", "axx\u4e2dx"), (Strings{"", "xx", "x"}));
  EXPECT_EQ(Matches("(?=\u4e2d)|\\z", "a\u4e2d\u4e2d"), (Strings{"", "", ""}));
}

// Its symbols are those of a later version of Oniguruma.
TEST(RegexTest, PunctuationHasSymbols) {
  EXPECT_EQ(Matches("[a[:punct:]]+", "a<b$!"), (Strings{"a<", "$!"}));
  EXPECT_EQ(Matches("[[:^punct:]]+", "a<b$!"), (Strings{"a", "b"}));
  EXPECT_EQ(Matches("[[:^punct:]&&[^b]]+", "a<b$c"), (Strings{"a", "c"}));
  EXPECT_EQ(Matches("[:punct:]+", "a<cut"), (Strings{"cut"}));
  EXPECT_EQ(Matches("\\[[:punct:]]", "a[t]"), (Strings{"[t]"}));
  EXPECT_EQ(Matches("[[:alpha:][:punct:]]+", "a< b"), (Strings{"a<", "b"}));
  EXPECT_FALSE(Regex::Compile("[[:punct:]").ok());
  EXPECT_FALSE(Regex::Compile("[[:punct:]]\\").ok());
}

TEST(RegexTest, PythonsSyntax) {
  const auto regex = Regex::Compile("\\A(?:(?P<m>q|v)_proj)\\Z", Regex::Syntax::kPython);
  ASSERT_TRUE(regex.ok()) << regex.status();
  EXPECT_FALSE(Regex::Compile("(?P<m>q)").ok());
}

// What a search keeps beside its matches, and searches within a search.
TEST(RegexTest, SearchesHaveMemoryOfTheirOwn) {
  const Regex counts = *Regex::Compile("(?:(*MAX{2})a|b)+");
  const Regex inner = *Regex::Compile("(a)(?~c)");
  size_t matches = 0;
  counts.FindAll("aaxb aaab", [&](size_t, size_t) {
    inner.FindAll("abcabc", [&](size_t, size_t) { ++matches; });
  });
  EXPECT_GT(matches, 4u);
}

TEST(RegexTest, ManyThreadsSearchAtOnce) {
  const Regex regex = *Regex::Compile("(a|b)+\\1");
  std::vector<std::thread> threads;
  std::atomic<int> found = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) regex.FindAll("abb baa", [&](size_t, size_t) { ++found; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found, 8 * 200 * 2);
}

TEST(RegexTest, LongMatchesAreFound) {
  for (const size_t size : {10, 900, 1000, 20000, 200000}) {
    const std::string text(size, 'a');
    EXPECT_EQ(Matches("(?:(a)|(b))+", text), std::vector<std::string>{text}) << size;
  }
}

TEST(RegexTest, WhatCannotBeDecidedIsAnError) {
  struct Case {
    std::string pattern, text, reason;
  };
  const std::vector<Case> cases = {
      {"(?:a+a+)+\\?|b", "bb" + std::string(64, 'a') + "!",
       "byte 2 of a text: retry-limit-in-match"},
      // Each place ends, but there are many.
      {"a(?:x?){8}y|b", "b" + std::string(1 << 16, 'a'), ""},
      {"(?:a|b|ab)*\\z", std::string(3 << 20, 'a') + "!", "byte 0 of a text: match-stack limit"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.pattern);
    try {
      Matches(c.pattern, c.text);
      EXPECT_EQ(c.reason, "");
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("pattern '" + c.pattern + "' cannot be matched at " + c.reason),
                std::string::npos)
          << what;
    }
  }
}

}  // namespace
}  // namespace tessera
