// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/vocab_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace tessera::data {
namespace {

TEST(VocabIndex, FindsWhatIsThere) {
  VocabEntries vocab;
  for (int32_t i = 0; i < 5000; ++i) {
    vocab.emplace_back(std::string(static_cast<size_t>(i % 40), 'x') + std::to_string(i), 7 * i);
  }
  vocab.emplace_back("", 3);
  const VocabIndex index(&vocab);
  EXPECT_EQ(index.twice(), nullptr);
  for (const auto& [piece, id] : vocab) EXPECT_EQ(index.Find(piece), id) << piece;
  for (int i = 5000; i < 9000; ++i) EXPECT_EQ(index.Find(std::to_string(i)), std::nullopt);
  EXPECT_EQ(index.Find("x"), std::nullopt);
  EXPECT_EQ(VocabIndex().Find("x"), std::nullopt);
  const VocabEntries none;
  EXPECT_EQ(VocabIndex(&none).Find("x"), std::nullopt);
}

TEST(VocabIndex, TellsOfPiecesThatAreThereTwice) {
  const VocabEntries vocab = {{"a", 1}, {"b", 2}, {"a", 3}};
  const VocabIndex index(&vocab);
  ASSERT_NE(index.twice(), nullptr);
  EXPECT_EQ(*index.twice(), "a");
  EXPECT_EQ(index.Find("a"), 1);
}

// Against the library that reads all other JSON.
TEST(ReadVocabJson, ReadsWhatTheLibraryReads) {
  const std::string texts[] = {
      "{}",
      " { } ",
      R"({"a": 0, "b":1 ,"c" : 2147483647})",
      R"({"\u0120a": 1, "\u00e9\ud83d\ude00": 2, "\"\\\/\b\f\n\r\t": 3, "\u0000": 4, "": 5})",
      "{\"\xC3\xA9\xF0\x9F\x98\x80\": 1,\n\t\"x\": 2}\r\n",
  };
  for (const std::string& text : texts) {
    const auto expected = nlohmann::json::parse(text).get<std::map<std::string, int32_t>>();
    const auto found = ReadVocabJson(text);
    ASSERT_TRUE(found) << text;
    EXPECT_EQ((std::map<std::string, int32_t>(found->begin(), found->end())), expected) << text;
    // Cut off anywhere it is none.
    const size_t whole = text.find_last_of('}');
    for (size_t size = 0; size <= whole; ++size) EXPECT_FALSE(ReadVocabJson(text.substr(0, size)));
  }
}

TEST(ReadVocabJson, LeavesEverythingElseToOthers) {
  for (const char* text : {"",
                           "[]",
                           "null",
                           "{\"a\"}",
                           "{\"a\": }",
                           "{\"a\": -1}",
                           "{\"a\": 1.0}",
                           "{\"a\": 1e3}",
                           "{\"a\": 01}",
                           "{\"a\": 2147483648}",
                           "{\"a\": 99999999999999999999}",
                           "{\"a\": \"1\"}",
                           "{\"a\": 1,}",
                           "{\"a\": 1 \"b\": 2}",
                           "{\"a\": 1} x",
                           "{a: 1}",
                           "{\"\\x\": 1}",
                           "{\"\\u12\": 1}",
                           "{\"\\u12g4\": 1}",
                           "{\"\\ud800\": 1}",
                           "{\"\\ud800\\u0041\": 1}",
                           "{\"\\udc00\": 1}",
                           "{\"a\nb\": 1}",
                           "{\"\xFF\": 1}",
                           "{\"a\": {\"b\": 1}}",
                           "{\"a\": 1} // x"}) {
    EXPECT_FALSE(ReadVocabJson(text)) << text;
  }
}

}  // namespace
}  // namespace tessera::data
