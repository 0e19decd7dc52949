// SPDX-License-Identifier: Apache-2.0
#include "models/generation/grammar/token_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/char_tokenizer.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/grammar/json_grammar.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::ordered_json;
using Random = std::mt19937_64;

constexpr const char* kTestdata = "data/tokenizer/testdata/";

int64_t Pick(Random& random, int64_t count) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(count));
}
bool Chance(Random& random, double p) {
  return std::uniform_real_distribution<double>()(random) < p;
}

// A schema of the common keywords.
ordered_json RandomSchema(Random& random, int depth) {
  const int64_t kind = Pick(random, depth > 0 ? 9 : 5);
  if (kind == 0) {
    const int64_t least = Pick(random, 400) - 200;
    ordered_json schema = {{"type", "integer"}, {"minimum", least}};
    if (Chance(random, 0.6)) schema["maximum"] = least + Pick(random, 300);
    return schema;
  }
  if (kind == 1) return {{"type", "number"}, {"minimum", -1.5}, {"exclusiveMaximum", 12.25}};
  if (kind == 2) {
    const int64_t least = Pick(random, 4);
    return {{"type", "string"}, {"minLength", least}, {"maxLength", least + Pick(random, 9)}};
  }
  if (kind == 3) return {{"enum", {"red", 1, nullptr, "é\"", {{"k", {1, 2}}}}}};
  if (kind == 4) return {{"type", {"boolean", "null"}}};
  if (kind == 5) {
    return {{"anyOf", {RandomSchema(random, depth - 1), RandomSchema(random, depth - 1)}}};
  }
  if (kind == 6) {
    const int64_t least = Pick(random, 3);
    return {{"type", "array"},
            {"items", RandomSchema(random, depth - 1)},
            {"minItems", least},
            {"maxItems", least + Pick(random, 4)}};
  }
  ordered_json schema = {{"type", "object"}, {"properties", ordered_json::object()}};
  schema["required"] = ordered_json::array();
  for (const char* name : {"a", "ab", "größe", "q\"t"}) {
    if (Chance(random, 0.4)) continue;
    schema["properties"][name] = RandomSchema(random, depth - 1);
    if (Chance(random, 0.5)) schema["required"].push_back(name);
  }
  if (Chance(random, 0.6)) schema["additionalProperties"] = Chance(random, 0.7) ? false : true;
  return schema;
}

bool HasType(const ordered_json& value, const std::string& type) {
  return (type == "null" && value.is_null()) || (type == "boolean" && value.is_boolean()) ||
         (type == "integer" && value.is_number() && std::floor(value.get<double>()) == value) ||
         (type == "number" && value.is_number()) || (type == "string" && value.is_string()) ||
         (type == "array" && value.is_array()) || (type == "object" && value.is_object());
}

int64_t Characters(const std::string& text) {
  int64_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) {
    i += static_cast<size_t>(DecodeUtf8(text, i).length);
  }
  return count;
}

bool Fits(const ordered_json& value, const ordered_json& schema);

bool ObjectFits(const ordered_json& value, const ordered_json& schema) {
  for (const ordered_json& name : schema["required"]) {
    if (!value.contains(name.get<std::string>())) return false;
  }
  for (const auto& [name, member] : value.items()) {
    if (schema["properties"].contains(name)) {
      if (!Fits(member, schema["properties"][name])) return false;
    } else if (schema.value("additionalProperties", true) == false) {
      return false;
    }
  }
  return true;
}

// What the schemas above say, read in another way than the grammars are made.
bool Fits(const ordered_json& value, const ordered_json& schema) {
  if (schema.contains("anyOf")) {
    return std::any_of(schema["anyOf"].begin(), schema["anyOf"].end(),
                       [&](const ordered_json& s) { return Fits(value, s); });
  }
  if (schema.contains("enum")) {
    return std::find(schema["enum"].begin(), schema["enum"].end(), value) != schema["enum"].end();
  }
  const ordered_json& type = schema["type"];
  const bool typed = type.is_array()
                         ? std::any_of(type.begin(), type.end(),
                                       [&](const ordered_json& t) { return HasType(value, t); })
                         : HasType(value, type);
  if (!typed) return false;
  if (value.is_number()) {
    const auto x = value.get<double>();
    return x >= schema.value("minimum", -1e300) && x <= schema.value("maximum", 1e300) &&
           x < schema.value("exclusiveMaximum", 1e300);
  }
  if (value.is_string()) {
    const int64_t length = Characters(value);
    return length >= schema["minLength"] && length <= schema["maxLength"];
  }
  if (value.is_array()) {
    return std::ssize(value) >= schema["minItems"] && std::ssize(value) <= schema["maxItems"] &&
           std::all_of(value.begin(), value.end(),
                       [&](const ordered_json& item) { return Fits(item, schema["items"]); });
  }
  return !value.is_object() || ObjectFits(value, schema);
}

struct Written {
  std::string text;
  bool complete = false;
  bool possible = false;  // with so many tokens
};

// The text of a model whose logits are random.
Written Write(const std::shared_ptr<const TokenGrammar>& grammar, int64_t tokens, Random& random) {
  GrammarText text(grammar, false);
  Written written;
  written.possible = grammar->TokensToComplete({{grammar->grammar().start(), nullptr}}) <= tokens;
  const Vocabulary& words = grammar->vocabulary();
  for (int64_t i = 0; i < tokens && !text.finished(); ++i) {
    const TokenMask mask = text.Allowed(tokens - i);
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < words.size(); ++id) {
      if (mask.Has(id)) ids.push_back(id);
    }
    if (ids.empty()) {
      ADD_FAILURE() << "nothing may follow " << written.text;
      break;
    }
    const int32_t id = ids[static_cast<size_t>(Pick(random, std::ssize(ids)))];
    EXPECT_TRUE(text.Add(id)) << "'" << words.Text(id, false) << "' after " << written.text;
    written.text += words.Text(id, false);
    if (text.complete() && Chance(random, 0.2)) break;
  }
  written.complete = text.complete();
  return written;
}

void WriteUnderRandomSchemas(const data::Tokenizer& tokenizer, int count) {
  const auto words = Vocabulary::Of(tokenizer);
  Random random(7);
  int complete = 0;
  for (int i = 0; i < count; ++i) {
    const ordered_json schema = RandomSchema(random, 3);
    auto bytes = JsonSchemaGrammar(schema, "schema");
    if (!bytes.ok()) {  // an array of two of what there is none of, say
      EXPECT_EQ(Message(bytes.status()), "schema: no value fits the schema") << schema.dump();
      continue;
    }
    const auto grammar = TokenGrammar::Of(*std::move(bytes), words);
    ASSERT_TRUE(grammar.ok()) << Message(grammar.status());
    const Written written = Write(*grammar, 10 + Pick(random, 100), random);
    EXPECT_TRUE(written.complete || !written.possible) << schema.dump() << "\n" << written.text;
    if (!written.complete) continue;
    ++complete;
    const ordered_json value = ordered_json::parse(written.text, nullptr, false);
    EXPECT_TRUE(!value.is_discarded() && Fits(value, schema)) << schema.dump() << "\n"
                                                              << written.text;
  }
  EXPECT_GT(complete, count * 8 / 10);
}

TEST(TokenGrammarTest, RandomTextsFitTheirSchemasInBytes) {
  WriteUnderRandomSchemas(data::ByteTokenizer(), 2000);
}

TEST(TokenGrammarTest, RandomTextsFitTheirSchemasInSentencePieces) {
  const auto tokenizer = data::LoadTokenizer(std::string(kTestdata) + "sentence_piece/llama");
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  WriteUnderRandomSchemas(**tokenizer, 2000);
}

TEST(TokenGrammarTest, RandomTextsFitTheirSchemasInByteLevelBpe) {
  const auto tokenizer = data::LoadTokenizer(std::string(kTestdata) + "transformers5/gpt2");
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  WriteUnderRandomSchemas(**tokenizer, 2000);
}

std::shared_ptr<const TokenGrammar> GrammarOf(const std::string& schema,
                                              const data::Tokenizer& tokenizer) {
  auto bytes = JsonSchemaGrammar(ordered_json::parse(schema), "schema");
  auto grammar = TokenGrammar::Of(*std::move(bytes), Vocabulary::Of(tokenizer));
  EXPECT_TRUE(grammar.ok()) << Message(grammar.status());
  return *grammar;
}

// A mask is the set of the tokens whose bytes the grammar accepts, wherever a text is.
TEST(TokenGrammarTest, MasksAreWhatTheBytesSay) {
  const auto tokenizer = *data::LoadTokenizer(std::string(kTestdata) + "transformers5/gpt2");
  const auto words = Vocabulary::Of(*tokenizer);
  Random random(3);
  for (int i = 0; i < 150; ++i) {
    auto bytes = JsonSchemaGrammar(RandomSchema(random, 3), "schema");
    if (!bytes.ok()) continue;
    const auto grammar = *TokenGrammar::Of(*std::move(bytes), words);
    GrammarState state(grammar->grammar());
    for (int step = 0; step < 30 && !state.finished(); ++step) {
      const TokenMask mask = grammar->Allowed(state.points(), -1, false);
      std::vector<int32_t> ids;
      for (int32_t id = 0; id < words->size(); ++id) {
        const std::string_view text = words->Text(id, false);
        const bool fits = !text.empty() && GrammarState(state).Advance(text);
        ASSERT_EQ(mask.Has(id), fits) << text;
        if (fits) ids.push_back(id);
      }
      if (ids.empty()) break;
      state.Advance(words->Text(ids[static_cast<size_t>(Pick(random, std::ssize(ids)))], false));
    }
  }
}

TEST(TokenGrammarTest, LongTextsShareTheirMasks) {
  // So long that states of their own for each length would not fit.
  const data::ByteTokenizer tokenizer;
  const auto grammar = GrammarOf(R"({"type":"string","minLength":3,"maxLength":90000})", tokenizer);
  GrammarText text(grammar, false);
  EXPECT_TRUE(text.Add('"'));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(text.Allowed().Has('"'));
    EXPECT_TRUE(text.Add('x'));
  }
  EXPECT_TRUE(text.Allowed().Has('"'));
}

// Characters as tokens: single bytes are missing, and so is what no token has.
TEST(TokenGrammarTest, TokensThatAreMissingAreNotNeeded) {
  const auto tokenizer = *data::CharTokenizer::Train("{}\":, xyé12");
  const auto grammar =
      GrammarOf(R"({"type":"object","required":["x"],"properties":{"x":{"enum":["é","abc",12]}},)"
                R"("additionalProperties":false})",
                *tokenizer);
  Random random(1);
  for (int i = 0; i < 50; ++i) {
    const Written written = Write(grammar, 40, random);
    EXPECT_TRUE(written.complete) << written.text;
    EXPECT_EQ(written.text.find("a"), std::string::npos);
  }
  auto bytes = JsonSchemaGrammar({{"const", "abc"}}, "schema");
  EXPECT_EQ(Message(TokenGrammar::Of(*std::move(bytes), Vocabulary::Of(*tokenizer)).status()),
            "the tokenizer has no tokens for \"abc\"");
}

// A first token's blank is dropped from the text: "▁{" begins it as "{".
TEST(TokenGrammarTest, FirstTokensBeginAText) {
  const auto tokenizer = *data::LoadTokenizer(std::string(kTestdata) + "sentence_piece/llama");
  const auto grammar = GrammarOf(R"({"type":"string","const":"a"})", *tokenizer);
  const Vocabulary& words = grammar->vocabulary();
  const GrammarText begins(grammar, true);
  const GrammarText follows(grammar, false);
  int dropped = 0;
  for (int32_t id = 0; id < words.size(); ++id) {
    EXPECT_EQ(begins.Allowed().Has(id), GrammarText(begins).Add(id)) << id;
    EXPECT_EQ(follows.Allowed().Has(id), GrammarText(follows).Add(id)) << id;
    dropped += words.Text(id, false) == " " && words.Text(id, true).empty();
  }
  EXPECT_GT(dropped, 0);
}

}  // namespace
}  // namespace tessera::models
