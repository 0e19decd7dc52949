// SPDX-License-Identifier: Apache-2.0
#include "corpus/io/json_line.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera::corpus {
namespace {

std::string TextOf(const std::string& quoted) {
  std::string text;
  AppendJsonText(quoted, &text);
  return text;
}

TEST(JsonLineTest, GivesMembersAsTheyAreSpelt) {
  const std::string line =
      R"( {"text" : "a\"b\\", "n":-1.50e+3,"o":{"x":[1,{}]} , "e":"", "t":true, "z":null} )";
  std::vector<JsonPiece> members;
  ASSERT_EQ(ScanJsonObject(line, &members), nullptr);
  ASSERT_EQ(members.size(), 6u);
  EXPECT_EQ(members[0].name, "text");
  EXPECT_EQ(members[0].value, R"("a\"b\\")");
  EXPECT_EQ(members[1].value, "-1.50e+3");
  EXPECT_EQ(members[2].value, R"({"x":[1,{}]})");
  EXPECT_EQ(members[5].value, "null");
  EXPECT_EQ(ScanJsonObject("{}", &members), nullptr);
  EXPECT_TRUE(members.empty());
}

TEST(JsonLineTest, RefusesWhatIsNoObject) {
  std::string deep = R"({"a":)" + std::string(100, '[') + std::string(100, ']') + "}";
  for (const std::string& line :
       {std::string(""), std::string("[]"), std::string("{"), std::string(R"({"a"})"),
        std::string(R"({"a":1,})"), std::string(R"({"a":01})"), std::string(R"({"a":1.})"),
        std::string(R"({"a":NaN})"), std::string(R"({"a":"b)"), std::string("{\"a\":\"\n\"}"),
        std::string(R"({"a":"\x"})"), std::string(R"({"a":"\u12G4"})"), std::string(R"({"a":1}x)"),
        std::string(R"({"a":1 "b":2})"), std::string(R"({"a":[1,]})"), std::string(R"({"a":"\u12)"),
        deep}) {
    std::vector<JsonPiece> members;
    EXPECT_NE(ScanJsonObject(line, &members), nullptr) << line;
    // An independent reader says the same of all but the depth.
    if (line != deep) {
      EXPECT_FALSE(nlohmann::json::accept(line) && line[0] == '{') << line;
    }
  }
}

TEST(JsonLineTest, TextsThereAndBack) {
  EXPECT_EQ(TextOf(R"("\u00e9\ud83d\ude00\/\b\f\n\r\t")"), "é😀/\b\f\n\r\t");
  // Halves of pairs.
  EXPECT_EQ(TextOf(R"("\ud83d!\ude00")"), "\xEF\xBF\xBD!\xEF\xBF\xBD");
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  all += "é世😀";
  std::string json;
  AppendJsonString(all, &json);
  EXPECT_EQ(nlohmann::json::parse(json), nlohmann::json(all));
  EXPECT_EQ(TextOf(json), all);
}

}  // namespace
}  // namespace tessera::corpus
