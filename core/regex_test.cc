// SPDX-License-Identifier: Apache-2.0
#include "core/regex.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

std::vector<std::string> Matches(const std::string& pattern, const std::string& text) {
  std::vector<std::string> found;
  Regex::Compile(pattern)->FindAll(
      text, [&](size_t begin, size_t end) { found.push_back(text.substr(begin, end - begin)); });
  return found;
}

TEST(RegexTest, FindsAllThatHoldSomething) {
  using Strings = std::vector<std::string>;
  EXPECT_EQ(Matches("\\p{N}+", "a12b3"), (Strings{"12", "3"}));
  EXPECT_EQ(Matches("x*", "axx\u4e2dx"), (Strings{"xx", "x"}));
  EXPECT_EQ(Matches("y", "abc"), Strings());
  EXPECT_NE(Message(Regex::Compile("a(b").status()).find("at byte 3"), std::string::npos);
}

// Longer than the stack of compiled patterns allows.
TEST(RegexTest, LongMatchesAreFoundOnTheHeap) {
  for (const size_t size : {10, 900, 1000, 20000, 200000}) {
    const std::string text(size, 'a');
    EXPECT_EQ(Matches("(?:(a)|(b))+", text), std::vector<std::string>{text}) << size;
  }
}

TEST(RegexTest, WhatCannotBeDecidedIsAnError) {
  const std::string text = "bb" + std::string(64, 'a') + "!";
  try {
    Matches("(?:a+a+)+\\?|b", text);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(
        std::string(error.what())
            .find("pattern '(?:a+a+)+\\?|b' cannot be matched at byte 2 of a text: match limit"),
        std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera
