// SPDX-License-Identifier: Apache-2.0
#include "base/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/json_ordered.h"
#include "nlohmann/json.hpp"

namespace tessera {
namespace {

using nlohmann::json;

std::string Failure(std::string_view text, const JsonRules& rules = {}) {
  const auto value = ParseJson(text, "c.json", rules);
  return value.ok() ? "accepted: " + value->dump() : Message(value.status());
}

TEST(JsonTextTest, ReadsWhatNlohmannReads) {
  for (const char* text : {"null",
                           "true",
                           " false ",
                           "0",
                           "-0",
                           "1",
                           "-1",
                           "1.5",
                           "-2.5e-3",
                           "1E5",
                           "1e+2",
                           "1.0",
                           "9223372036854775807",
                           "-9223372036854775808",
                           "18446744073709551615",
                           "\"\"",
                           R"("a\"\\\/\b\f\n\r\tb")",
                           R"("\u00e9\ud83d\ude00\u0000")",
                           "[]",
                           "[ ]",
                           "{}",
                           "[1,[2,{}]]",
                           R"({"b":1,"a":{"c":[null,true]}})",
                           "[1 , 2\n,\t3\r]",
                           "5e-324",
                           "1e-400",
                           "1.7976931348623157e308"}) {
    const auto value = ParseJson(text, "text");
    ASSERT_TRUE(value.ok()) << text << value.status();
    const json expected = json::parse(text);
    EXPECT_EQ(*value, expected) << text;
    EXPECT_EQ(value->type(), expected.type()) << text;
  }
}

TEST(JsonTextTest, RefusesWhatNlohmannRefuses) {
  for (const char* text :
       {"",         " ",       "{",          "[",       "[1",        "[1,",         "[1,]",
        "{\"a\"",   "{\"a\":", "{\"a\":1,}", "{a:1}",   "01",        "-01",         "1.",
        ".5",       "-",       "+1",         "1e",      "1e+",       "0x1",         "tru",
        "nul",      "True",    "\"a",        "\"\\x\"", "\"\\u12\"", "\"\\ud83d\"", "\"\\udc00\"",
        "\"a\nb\"", "1 2",     "[] x",       "{} {}",   "'a'",       "\"\xFF\"",    "\"\xC0\xAF\"",
        "[1}",      "{1:2}",   "/* c */ 1",  "nan",     "inf",       "-NaN",        "- 1"}) {
    EXPECT_FALSE(json::accept(text)) << text;
    EXPECT_NE(Failure(text).find("c.json: not valid JSON at byte "), std::string::npos)
        << text << Failure(text);
  }
  EXPECT_EQ(Failure("[{"), "c.json: not valid JSON at byte 3");
  EXPECT_EQ(Failure("no"), "c.json: not valid JSON at byte 2");
  EXPECT_EQ(Failure("[1,\"a\n\"]"), "c.json: not valid JSON at byte 6");
  EXPECT_EQ(Failure("{\"a\":\"\\x\"}"), "c.json: not valid JSON at byte 8");
}

TEST(JsonTextTest, ReadsNumbersAsPythonDoes) {
  const auto number = [](const char* text) { return ParseJson(text, "text")->get<double>(); };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(number("NaN")));
  EXPECT_EQ(number("Infinity"), kInfinity);
  EXPECT_EQ(number("-Infinity"), -kInfinity);
  EXPECT_EQ(number("1e400"), kInfinity);
  EXPECT_EQ(number("-1e400"), -kInfinity);
  EXPECT_EQ(number("1e-400"), 0);
  EXPECT_EQ(number("18446744073709551616"), 18446744073709551616.0);
  EXPECT_TRUE(std::isnan((*ParseJson("[1, NaN]", "text"))[1].get<double>()));
  EXPECT_NE(Failure("-Inf").find("at byte 5"), std::string::npos) << Failure("-Inf");
  EXPECT_NE(Failure("-").find("at byte 2"), std::string::npos);
  EXPECT_TRUE(ParseJson(std::string(4300, '7'), "text").ok());
  EXPECT_EQ(Failure(std::string(4301, '7')), "c.json: an integer of more than 4300 digits");
}

// As nlohmann's parser takes it.
TEST(JsonTextTest, StrictIsTheStandard) {
  for (const char* text : {"NaN", "[Infinity]", "-Infinity", "1e400", "[-1e400]"}) {
    EXPECT_FALSE(ParseJson(text, "text", {.strict = true}).ok()) << text;
    EXPECT_FALSE(ParseOrderedJson(text, "text", {.strict = true}).ok()) << text;
  }
  for (const char* text :
       {"18446744073709551616", "-9223372036854775809", "1e-400", "[1, -0, 2.5]"}) {
    EXPECT_EQ(*ParseJson(text, "text", {.strict = true}), json::parse(text)) << text;
    EXPECT_EQ(*ParseOrderedJson(text, "text", {.strict = true}),
              nlohmann::ordered_json::parse(text))
        << text;
  }
}

TEST(JsonTextTest, LastOfEqualKeysCountsOrIsRefused) {
  EXPECT_EQ(*ParseJson(R"({"a":1,"b":2,"a":3})", "text"), json({{"a", 3}, {"b", 2}}));
  constexpr JsonRules kUnique = {.unique_keys = true};
  EXPECT_EQ(Failure(R"({"lr":1,"b":{"lr":2},"lr":1})", kUnique),
            "c.json: 'lr' is given twice, at line 1, column 2 and line 1, column 22; keep one of "
            "them");
  EXPECT_EQ(Failure("{\"a\":[{\"zero\":{\n \"stage\":2,\n\n  \"stage\":3}}]}", kUnique),
            "c.json: 'a.zero.stage' is given twice, at line 2, column 2 and line 4, column 3; keep "
            "one of them");
  EXPECT_EQ(Failure(R"({"\u0061":1, "a":1})", kUnique),
            "c.json: 'a' is given twice, at line 1, column 2 and line 1, column 14; keep one of "
            "them");
  EXPECT_TRUE(ParseJson(R"([{"a":1},{"a":1}])", "text", kUnique).ok());
}

TEST(JsonTextTest, CommentsCountWhereTheyAreAskedFor) {
  constexpr JsonRules kComments = {.comments = true};
  EXPECT_EQ(*ParseJson("// one\n{ /* two **/ \"a\" : 1 } // three", "text", kComments),
            json({{"a", 1}}));
  EXPECT_EQ(*ParseJson("[\"// a /* b */\"]", "text", kComments), json({"// a /* b */"}));
  EXPECT_NE(Failure("[1] /* open", kComments).find("not valid JSON"), std::string::npos);
  EXPECT_NE(Failure("[1] / 2", kComments).find("not valid JSON"), std::string::npos);
}

TEST(JsonTextTest, BoundsDepthAndValues) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(ParseJson(nested(kMaxJsonDepth), "text").ok());
  EXPECT_EQ(Failure(nested(kMaxJsonDepth + 1)),
            "c.json: JSON nested deeper than 64 levels at byte 64");
  EXPECT_TRUE(ParseJson("[1,2,[3]]", "text", {.max_values = 5}).ok());
  EXPECT_EQ(Failure("[1,2,[3]]", {.max_values = 4}), "c.json: JSON of more than 4 values");
}

}  // namespace
}  // namespace tessera
