// SPDX-License-Identifier: Apache-2.0
#include "serve/grammar_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/tokenizer/byte_tokenizer.h"

namespace tessera::serve {
namespace {

using models::GrammarState;
using models::JsonObjects;
using nlohmann::ordered_json;

ordered_json Integers(const std::string& name) {
  return {{"type", "object"}, {"properties", {{name, {{"type", "integer"}}}}}};
}

bool Fits(const GrammarCache::Grammar& grammar, const std::string& text) {
  GrammarState state(grammar->grammar());
  return state.Advance(text) && state.complete();
}

TEST(GrammarCacheTest, KeepsTheGrammarsThatWereAskedForLast) {
  const data::ByteTokenizer tokenizer;
  GrammarCache cache(tokenizer, 2);
  const auto of = [&](const std::string& name) {
    const auto grammar = cache.OfSchema(Integers(name), "schema");
    EXPECT_TRUE(grammar.ok()) << Message(grammar.status());
    return *grammar;
  };
  const auto a = of("a");
  const auto b = of("b");
  EXPECT_EQ(of("a"), a);
  of("c");  // takes the place of b
  EXPECT_EQ(of("a"), a);
  EXPECT_NE(of("b"), b);
  // The order of properties is a part of a schema.
  const auto ab = cache.OfSchema(ordered_json::parse(R"({"required":["a"],"type":"object"})"), "s");
  const auto ba = cache.OfSchema(ordered_json::parse(R"({"type":"object","required":["a"]})"), "s");
  EXPECT_NE(*ab, *ba);
}

TEST(GrammarCacheTest, ObjectsAreOpenOrClosed) {
  const data::ByteTokenizer tokenizer;
  GrammarCache cache(tokenizer);
  const auto open = cache.OfSchema(Integers("a"), "schema", JsonObjects::kOpen);
  const auto closed = cache.OfSchema(Integers("a"), "schema", JsonObjects::kClosed);
  ASSERT_TRUE(open.ok() && closed.ok());
  const std::string more = R"({"a": 1, "b": 2})";
  EXPECT_TRUE(Fits(*open, more));
  EXPECT_FALSE(Fits(*closed, more));
  EXPECT_TRUE(Fits(*closed, R"({"a": 1})"));
  // What a schema says counts, and objects without declared properties stay open.
  ordered_json said = Integers("a");
  said["additionalProperties"] = true;
  EXPECT_TRUE(Fits(*cache.OfSchema(said, "schema", JsonObjects::kClosed), more));
  EXPECT_TRUE(Fits(*cache.OfSchema({{"type", "object"}}, "schema", JsonObjects::kClosed), more));
}

TEST(GrammarCacheTest, MarksMayBeWrittenAsSpecialTokens) {
  const data::ByteTokenizer tokenizer;
  GrammarCache cache(tokenizer);
  const std::string mark(data::kEndOfText);
  const ordered_json schema = {{"type", "integer"}};
  const auto of = [&](const std::string& text, const std::vector<std::string>& marks) {
    const auto grammar =
        cache.OfTexts(schema, {{text, &schema}}, marks, "tools", JsonObjects::kOpen);
    EXPECT_TRUE(grammar.ok()) << Message(grammar.status());
    return *grammar;
  };
  const auto allowed = [&](const GrammarCache::Grammar& grammar) {
    models::GrammarText text(grammar, false);
    EXPECT_TRUE(text.Add('f'));
    EXPECT_TRUE(text.Allowed().Has(mark[0]));
    return text.Allowed().Has(data::ByteTokenizer::kEosId);
  };
  const auto marked = of("f" + mark, {mark});
  EXPECT_TRUE(allowed(marked));
  EXPECT_EQ(of("f" + mark, {mark}), marked);
  EXPECT_NE(of("g" + mark, {mark}), marked);
  EXPECT_TRUE(allowed(of("f" + mark + "!", {mark, "no token"})));
  EXPECT_FALSE(allowed(of("f" + mark + "?", {})));
}

TEST(GrammarCacheTest, NamesWhatIsWrong) {
  const data::ByteTokenizer tokenizer;
  GrammarCache cache(tokenizer);
  const auto wrong =
      cache.OfSchema(ordered_json::parse(R"({"properties": {"a": {"type": "text"}}})"),
                     "response_format.json_schema.schema");
  ASSERT_FALSE(wrong.ok());
  EXPECT_TRUE(Message(wrong.status()).starts_with("response_format.json_schema.schema: "))
      << wrong.status();
  EXPECT_NE(Message(wrong.status()).find("properties.a"), std::string::npos) << wrong.status();
}

}  // namespace
}  // namespace tessera::serve
