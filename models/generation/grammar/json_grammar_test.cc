// SPDX-License-Identifier: Apache-2.0
#include "models/generation/grammar/json_grammar.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json_ordered.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::ordered_json;

ByteGrammar GrammarFor(const std::string& schema) {
  auto grammar = JsonSchemaGrammar(*ParseOrderedJson(schema, "schema"), "schema");
  EXPECT_TRUE(grammar.ok()) << schema << ": " << Message(grammar.status());
  return grammar.ok() ? *std::move(grammar) : JsonValueGrammar();
}

bool Accepts(const ByteGrammar& grammar, std::string_view text) {
  GrammarState state(grammar);
  return state.Advance(text) && state.complete();
}

std::string FailureOf(const std::string& schema) {
  const auto grammar = JsonSchemaGrammar(*ParseOrderedJson(schema, "schema"), "schema");
  EXPECT_FALSE(grammar.ok()) << schema;
  return Message(grammar.status());
}

struct Case {
  std::string schema;
  std::vector<std::string> good;
  std::vector<std::string> bad;
};

void Check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const ByteGrammar grammar = GrammarFor(c.schema);
    for (const std::string& text : c.good) {
      EXPECT_TRUE(Accepts(grammar, text)) << c.schema << " rejects " << text;
    }
    for (const std::string& text : c.bad) {
      EXPECT_FALSE(Accepts(grammar, text)) << c.schema << " accepts " << text;
    }
  }
}

TEST(JsonGrammarTest, Types) {
  Check({
      {"true", {"1", "null", "[]", "{}", R"({"a": [1, {"b": null}]})", " 5"}, {"", "nul", "[1,]"}},
      {R"({"type":"integer"})",
       {"0", "-7", "123456789012345678901234567890"},
       {"1.5", "01", "-", "-0", "1e3", "\"1\""}},
      {R"({"type":"number"})",
       {"0", "-0.0", "1.25e-7", "1e+300", "1E5", "12.5"},
       {"1.", ".5", "+1", "1e999", "1e"}},
      {R"({"type":["string","null"]})", {"\"a\"", "null"}, {"1", "\"a"}},
      {R"({"type":"boolean"})", {"true", "false"}, {"True"}},
  });
}

TEST(JsonGrammarTest, Strings) {
  Check({
      {R"({"type":"string"})",
       {R"("")", R"("é")", R"("\u00e9\n\/\"")", R"("\ud83d\ude00")", "\"😀\""},
       {"\"\n\"", R"("\ud83d")", R"("\ude00")", R"("\x")", "\"\xff\"", "\"\xc3\"", "\"\xc0\x80\"",
        "\"\xed\xa0\x80\""}},
      // Characters count, not bytes, and a pair of surrogates is one.
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("éé")", R"("😀\ud83d\ude00x")", R"("\n\n")"},
       {R"("a")", R"("abcd")", R"("é")", R"("\ud83d\ude00")"}},
      {R"({"type":"string","minLength":2})", {R"("ab")", R"("abcdefgh")"}, {R"("a")", R"("")"}},
      {R"({"type":"string","maxLength":0})", {R"("")"}, {R"("a")"}},
      {R"({"type":"string","pattern":"b"})", {R"("b")", R"("abc")"}, {R"("ac")", R"("")"}},
      {R"({"type":"string","pattern":"^(a|bc)+$"})",
       {R"("abca")"},
       {R"("ab")", R"("")", R"("xa")"}},
      {R"({"type":"string","pattern":"^a|b$"})", {R"("ax")", R"("xb")"}, {R"("xa")", R"("bx")"}},
      {R"({"type":"string","pattern":"^[^a-y\\d]{2,3}?$"})",
       {R"("zé")", R"("\"Z ")"},
       {R"("z1")", R"("zzzz")", R"("z")"}},
      {R"({"type":"string","pattern":"^\\w+@\\S*\\.(com|de)$"})",
       {R"("a_1@b.com")"},
       {R"("a@b.org")", R"("a@ .de")"}},
      {R"({"type":"string","pattern":"a+","minLength":3,"maxLength":4})",
       {R"("xax")", R"("aaaa")"},
       {R"("aa")", R"("xxx")", R"("aaaaa")"}},
      {R"({"type":"string","format":"date"})",
       {R"("2024-02-29")", R"("2023-12-31")"},
       {R"("2023-02-29")", R"("2023-04-31")", R"("2023-13-01")", R"("1900-02-29")"}},
      {R"({"type":"string","format":"date-time"})",
       {R"("2024-02-29T23:59:59.5+01:00")"},
       {R"("2024-02-29")", R"("2024-02-29T24:00:00Z")"}},
      {R"({"type":"string","format":"ipv4"})", {R"("192.168.0.255")"}, {R"("192.168.0.256")"}},
      {R"({"type":"string","format":"uuid"})",
       {R"("123e4567-e89b-12d3-a456-426614174000")"},
       {R"("123e4567")"}},
      {R"({"type":"string","format":"no-such"})", {R"("x")"}, {"1"}},
  });
}

TEST(JsonGrammarTest, Numbers) {
  Check({
      {R"({"type":"integer","minimum":-5,"maximum":120})",
       {"-5", "0", "9", "10", "99", "120"},
       {"-6", "121", "1000", "-10", "-0"}},
      {R"({"type":"integer","exclusiveMinimum":0})",
       {"1", "10", "99999999999999999999999"},
       {"0", "-1"}},
      {R"({"type":"integer","maximum":-3})", {"-3", "-10", "-44"}, {"-2", "0", "3"}},
      {R"({"type":"integer","minimum":1.5,"maximum":3.5})", {"2", "3"}, {"1", "4"}},
      {R"({"type":"integer","minimum":18446744073709551615})",
       {"18446744073709551615", "20000000000000000000"},
       {"18446744073709551614", "9"}},
      {R"({"type":"integer","multipleOf":7,"minimum":0})",
       {"0", "7", "49", "700"},
       {"1", "50", "-7"}},
      {R"({"type":"number","multipleOf":0.01})",
       {"0", "19.99", "-0.5", "7", "100.10"},
       {"0.001", "1.999", "00.5", "1.", "1e2", ".5"}},
      {R"({"type":"number","multipleOf":0.25,"minimum":-1,"maximum":10})",
       {"-0.25", "0.5", "1.75", "9.50", "10"},
       {"0.2", "0.26", "-1.25", "10.25", "1.750"}},
      {R"({"multipleOf":2.5,"type":"integer"})", {"0", "5", "-10"}, {"2", "2.5", "7"}},
      {R"({"type":"number","allOf":[{"multipleOf":0.5},{"multipleOf":0.75}]})",
       {"1.5", "3", "-4.5"},
       {"0.5", "0.75", "1", "2.25"}},
      {R"({"multipleOf":0.1,"enum":[0.3,0.35,2,"a"]})", {"0.3", "2", "\"a\""}, {"0.35"}},
      {R"({"type":"number","allOf":[{"multipleOf":0.5},{"multipleOf":2}]})",
       {"2", "-4"},
       {"0.5", "1", "2.0"}},
      {R"({"type":"number","minimum":0.25,"exclusiveMaximum":1.5})",
       {"0.25", "0.3", "1", "1.49", "1.0"},
       {"0.2499", "0", "1.5", "1.50", "2"}},
      {R"({"type":"number","minimum":-1.5,"maximum":2})",
       {"-1.5", "-1", "-0.5", "0", "2", "2.000"},
       {"-1.51", "2.01", "3", "-2"}},
      {R"({"type":"number","exclusiveMinimum":0,"maximum":1})",
       {"0.001", "1", "1.0"},
       {"0", "0.0", "-0.0", "1.1"}},
      {R"({"type":"number","maximum":0,"exclusiveMinimum":-0.5})",
       {"0", "-0.0", "-0.49"},
       {"-0.5", "0.1"}},
  });
}

TEST(JsonGrammarTest, Constants) {
  Check({
      {R"({"enum":["a","é\n",1,2.5,null,{"x":[1,2]},[]]})",
       {R"("a")", R"("é\n")", R"("\u00e9\u000a")", "1", "2.5", "null", R"({"x": [1, 2]})",
        R"({"x":[1,2]})", "[]"},
       {R"("b")", "2", R"({"x":[1]})", R"({})"}},
      {R"({"const":"only"})", {R"("only")"}, {R"("onl")", R"("")"}},
      {R"({"type":"integer","minimum":3,"enum":[1,4,"x",5.5]})", {"4"}, {"1", R"("x")", "5.5"}},
      {R"({"type":"string","maxLength":1,"enum":["a","bb"]})", {R"("a")"}, {R"("bb")"}},
  });
}

TEST(JsonGrammarTest, IntegersBeyond64Bits) {
  Check({
      {R"({"const":123456789012345678901234567890})",
       {"123456789012345678901234567890"},
       {"123456789012345678901234567891", "1.2345678901234568e+29", R"({"bytes":[]})"}},
      {R"({"type":"integer","enum":[[18446744073709551616],18446744073709551617,-99999999999999999999]})",
       {"18446744073709551617", "-99999999999999999999"},
       {"18446744073709551616", "[18446744073709551616]"}},
      {R"({"type":"array","enum":[[18446744073709551616],18446744073709551617]})",
       {"[18446744073709551616]"},
       {"18446744073709551617"}},
      {R"({"minimum":18446744073709551617,"enum":[18446744073709551616,18446744073709551618]})",
       {"18446744073709551618"},
       {"18446744073709551616"}},
      {R"({"type":"integer","minimum":18446744073709551616,"maximum":18446744073709551700})",
       {"18446744073709551616", "18446744073709551699"},
       {"18446744073709551615", "18446744073709551701", "1"}},
      {R"({"type":"number","exclusiveMinimum":-18446744073709551616,"exclusiveMaximum":-18446744073709551610})",
       {"-18446744073709551615", "-18446744073709551610.5"},
       {"-18446744073709551616", "-18446744073709551610", "0"}},
      {R"({"type":"array","maxItems":18446744073709551616})", {"[]", "[1,2]"}, {"1"}},
      // However it is written, it is one number.
      {R"({"const":100000000000000000000,"enum":[1e20,7]})", {"100000000000000000000"}, {"7"}},
  });
  EXPECT_EQ(FailureOf(R"({"multipleOf":18446744073709551616})"),
            "schema: 'multipleOf': is supported for whole numbers up to 10000 and decimals of up "
            "to 4 digits, not 18446744073709551616");
  EXPECT_EQ(FailureOf(R"({"allOf":[{"multipleOf":0.9999},{"multipleOf":7}]})"),
            "schema: 'allOf.1.multipleOf': with another one it has too many digits");
  EXPECT_EQ(FailureOf(R"({"type":18446744073709551616})"),
            "schema: 'type': there is no type 18446744073709551616");
}

TEST(JsonGrammarTest, Objects) {
  const std::string person =
      R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"string"},)"
      R"("c":{"type":"null"}},"required":["a"],"additionalProperties":false})";
  Check({
      {person,
       {R"({"a":""})", R"({"b":1,"a":"x","c":null})", R"({"a": "x", "c": null})",
        "{\n  \"a\": \"x\",\n  \"c\": null\n}", "{\n\t\"a\": \"x\"\n}"},
       {"{}", R"({"b":1})", R"({"a":"x","b":1})", R"({"a":1})", R"({"a":"","d":1})", R"({"a":"",})",
        R"({,"a":""})", R"({"a":"" "c":null})", R"({"a":"","a":""})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"}})",
       {"{}", R"({"a":1})", R"({"a":1,"b":"x","cc":"y"})", R"({"aa":"x"})", R"({"":"x"})"},
       {R"({"b":1})", R"({"a":"x"})", R"({"b":"x","a":1})"}},
      {R"({"type":"object","required":["x"]})", {R"({"x":[1]})", R"({"x":1,"y":2})"}, {"{}"}},
      {R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"minProperties":2,)"
       R"("maxProperties":2,"additionalProperties":false})",
       {R"({"a":1,"c":2})", R"({"b":1,"c":2})"},
       {"{}", R"({"a":1})", R"({"a":1,"b":2,"c":3})"}},
      {R"({"type":"object","minProperties":1,"maxProperties":2})",
       {R"({"q":1})", R"({"q":1,"r":2})"},
       {"{}", R"({"q":1,"r":2,"s":3})"}},
      // An additional name may not be a declared one in other letters.
      {R"({"type":"object","properties":{"é":{"type":"integer"}},"additionalProperties":true})",
       {R"({"\u00e9":1})", R"({"é":1,"e":"x"})"},
       {R"({"\u00e9":"x"})", R"({"\u00E9":null})"}},
      {R"({"type":"object","properties":{"a":false,"b":{"type":"null"}}})",
       {R"({"b":null})", "{}"},
       {R"({"a":1})"}},
  });
}

TEST(JsonGrammarTest, Arrays) {
  Check({
      {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
       {"[1]", "[1,2,3]", "[1, 2]", "[\n  1,\n  2\n]"},
       {"[]", "[1,2,3,4]", "[1 2]", "[\"a\"]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false})",
       {"[]", "[1]", R"([1,"a"])"},
       {R"([1,"a",2])", R"(["a"])"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"null"},"minItems":3})",
       {"[1,null,null]", "[1,null,null,null]"},
       {"[1]", "[1,null]", "[1,2,null]"}},
      {R"({"type":"array","items":[{"type":"integer"}],"additionalItems":false})",
       {"[1]", "[]"},
       {"[1,2]"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
  });
}

TEST(JsonGrammarTest, Combinations) {
  Check({
      {R"({"anyOf":[{"type":"integer"},{"type":"object","properties":{"k":{"const":1}},"required":["k"]},)"
       R"({"type":"object","properties":{"k":{"const":2},"l":{"type":"null"}},"required":["k","l"],"additionalProperties":false}]})",
       {"3", R"({"k":1})", R"({"k":2,"l":null})", R"({"k":1,"z":[]})"},
       {R"({"k":2})", "\"a\"", R"({"k":3})"}},
      {R"({"type":"integer","oneOf":[{"minimum":10},{"maximum":2}]})", {"11", "1", "-5"}, {"5"}},
      {R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer","minimum":0}},"required":["a"]},)"
       R"({"properties":{"a":{"maximum":5},"b":{"type":"string"}},"additionalProperties":false}]})",
       {R"({"a":5})", R"({"a":0,"b":"x"})"},
       {R"({"a":6})", R"({"b":"x"})", R"({"a":1,"c":1})"}},
      {R"({"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#"}},"required":["v"],"additionalProperties":false})",
       {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":{"v":3}}})"},
       {R"({"v":1,"next":{}})"}},
      {R"({"$ref":"#/$defs/tree","$defs":{"tree":{"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#/$defs/tree"}}]}}})",
       {"null", "[]", "[null,[[],null]]"},
       {"[1]"}},
      {R"({"definitions":{"a/b":{"minimum":3}},"type":"integer","$ref":"#/definitions/a~1b"})",
       {"3"},
       {"2"}},
      {R"({"$defs":{"a é":{"const":1},"100%":{"const":2}},"prefixItems":[{"$ref":"#/$defs/a%20%C3%A9"},)"
       R"({"$ref":"#/$defs/100%"}],"items":false,"minItems":2,"type":"array"})",
       {"[1,2]"},
       {"[2,1]"}},
  });
}

TEST(JsonGrammarTest, FreeForms) {
  const ByteGrammar object = JsonObjectGrammar();
  EXPECT_TRUE(Accepts(object, R"({"a":[{"b":null}],"c":{}})"));
  EXPECT_FALSE(Accepts(object, "[]"));
  EXPECT_TRUE(Accepts(JsonValueGrammar(), "[[[1]]]"));
  // White space is bounded, and so is depth.
  EXPECT_TRUE(Accepts(object, "{\n" + std::string(40, ' ') + "}"));
  EXPECT_FALSE(Accepts(object, "{\n" + std::string(41, ' ') + "}"));
  EXPECT_FALSE(Accepts(object, "{  }"));
  EXPECT_TRUE(Accepts(JsonValueGrammar(), std::string(500, '[') + std::string(500, ']')));
  EXPECT_FALSE(Accepts(JsonValueGrammar(), std::string(600, '[') + std::string(600, ']')));
}

TEST(JsonGrammarTest, ValuesBehindTexts) {
  const ordered_json document = ordered_json::parse(
      R"({"a": {"type": "object", "properties": {"b": {"$ref": "#/b"}}, "required": ["b"]},)"
      R"( "b": {"type": "integer"}})");
  const auto grammar =
      JsonBehindTextGrammar(document, {{"f[ARGS]", &document["a"]}, {"fg[ARGS]", &document["b"]}},
                            "tools", JsonObjects::kClosed);
  ASSERT_TRUE(grammar.ok()) << Message(grammar.status());
  const auto fits = [&](std::string_view text) {
    GrammarState state(*grammar);
    return state.Advance(text) && state.complete();
  };
  EXPECT_TRUE(fits(R"(f[ARGS]{"b": 1})"));
  EXPECT_TRUE(fits(R"(f[ARGS] {"b": 1})"));
  EXPECT_TRUE(fits("fg[ARGS]12"));
  for (const char* text : {"f[ARGS]12", R"(fg[ARGS]{"b": 1})", "[ARGS]12", "12", "f", ""}) {
    EXPECT_FALSE(fits(text)) << text;
  }
}

TEST(JsonGrammarTest, RefusalsNameTheKeyword) {
  const auto in_a = [](const std::string& schema) {
    return FailureOf(R"({"type":"object","properties":{"a":)" + schema + "}}");
  };
  EXPECT_EQ(in_a(R"({"uniqueItems":true})"),
            "schema: 'properties.a': 'uniqueItems' is not supported");
  EXPECT_EQ(in_a(R"({"not":{}})"), "schema: 'properties.a': 'not' is not supported");
  EXPECT_EQ(in_a(R"({"type":"strin"})"), "schema: 'properties.a.type': there is no type \"strin\"");
  EXPECT_EQ(in_a(R"#({"pattern":"a(?=b)"})#"),
            "schema: 'properties.a.pattern': '(?' is supported as '(?:' and '(?<name>' only");
  EXPECT_EQ(in_a(R"({"minLength":-1})"),
            "schema: 'properties.a.minLength': must be a whole number from 0 on");
  EXPECT_EQ(in_a(R"({"$ref":"#/$defs/b"})"),
            "schema: 'properties.a.$ref': '#/$defs/b' is not found");
  EXPECT_EQ(in_a("3"), "schema: 'properties.a': a schema is an object, true or false");
  EXPECT_EQ(in_a(R"({"multipleOf":-1})"),
            "schema: 'properties.a.multipleOf': is supported for whole numbers up to 10000 and "
            "decimals of up to 4 digits, not -1");
  EXPECT_EQ(FailureOf(R"({"$ref":"#"})"),
            "schema: too many schemas hold together; '$ref' may lead back to itself");
  EXPECT_EQ(FailureOf("false"), "schema: no value fits the schema");
  EXPECT_EQ(FailureOf(R"({"type":"object","properties":{"a":false},"required":["a"]})"),
            "schema: no value fits the schema");
  EXPECT_EQ(FailureOf(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"),
            "schema: no value fits the schema");
}

TEST(JsonGrammarTest, StatesAreCopies) {
  const ByteGrammar grammar = GrammarFor(R"({"type":"array","items":{"type":"integer"}})");
  GrammarState state(grammar);
  ASSERT_TRUE(state.Advance("[1"));
  GrammarState other = state;
  EXPECT_TRUE(other.Advance("]"));
  EXPECT_TRUE(other.finished());
  EXPECT_FALSE(state.complete());
  EXPECT_TRUE(state.Allowed(','));
  EXPECT_FALSE(state.Allowed('x'));
  EXPECT_FALSE(state.Advance(",x"));
  EXPECT_TRUE(state.Advance("0]"));
}

}  // namespace
}  // namespace tessera::models
