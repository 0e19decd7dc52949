// SPDX-License-Identifier: Apache-2.0
// Grammars of JSON texts.
//
//   TESSERA_ASSIGN_OR_RETURN(const ByteGrammar grammar,
//       JsonSchemaGrammar(nlohmann::ordered_json::parse(text),
//       "response_format.json_schema.schema"));
//
// Every text of a schema's grammar is JSON that fits the schema (schema_facts.h says how keywords
// are read). Of the JSON texts of a value the grammar has these:
//   - declared properties in the order of their declaration, then additional ones;
//   - a blank, or a new line and up to 40 blanks or 10 tabs, behind "[", "{" and ",", and before
//     "]" and "}"; a blank behind ":" and before the text;
//   - numbers with bounds have no exponent, and 15 digits behind an exclusive bound;
//   - at most 4,096 items, 1,024 additional properties where properties are counted, and a hundred
//     thousand characters where a text is bounded.
#ifndef TESSERA_MODELS_GENERATION_GRAMMAR_JSON_GRAMMAR_H_
#define TESSERA_MODELS_GENERATION_GRAMMAR_JSON_GRAMMAR_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/grammar/byte_grammar.h"
#include "models/generation/grammar/token_grammar.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

// Whether an object may have properties that its schema does not declare, where the schema declares
// some and has no `additionalProperties`. The standard says yes (open).
enum class JsonObjects { kOpen, kClosed };

// InvalidArgument: a schema that is malformed or not supported ("WHERE: 'properties.a':
// 'uniqueItems' is not supported"), or that no value fits.
StatusOr<ByteGrammar> JsonSchemaGrammar(const nlohmann::ordered_json& schema,
                                        const std::string& where,
                                        JsonObjects objects = JsonObjects::kOpen);

// A value of `schema`, a part of a document, behind a text.
struct JsonBehindText {
  std::string text;
  const nlohmann::ordered_json* schema;
};

// One of several, which refer to one another within the document.
StatusOr<ByteGrammar> JsonBehindTextGrammar(const nlohmann::ordered_json& document,
                                            const std::vector<JsonBehindText>& alternatives,
                                            const std::string& where, JsonObjects objects);

// A schema as text, over a tokenizer's tokens. The tokenizer must outlive it.
// InvalidArgument also for what is no JSON.
StatusOr<std::shared_ptr<const TokenGrammar>> TokenGrammarOfSchema(
    std::string_view schema, const std::string& where, const data::Tokenizer& tokenizer);

// Any JSON value, or any JSON object.
ByteGrammar JsonValueGrammar();
ByteGrammar JsonObjectGrammar();

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_GRAMMAR_JSON_GRAMMAR_H_
