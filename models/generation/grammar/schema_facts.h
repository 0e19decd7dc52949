// SPDX-License-Identifier: Apache-2.0
// What a JSON Schema (draft 2020-12, and earlier drafts' words for the same) says of a value, by
// kinds of values.
//
//   const SchemaReader reader(document, "schema");
//   TESSERA_ASSIGN_OR_RETURN(const std::vector<SchemaFacts> facts, reader.Read({&document}));
//
// A value fits if it fits one of the facts. Schemas that hold together (allOf, $ref beside other
// keywords) become one; anyOf and oneOf become several. oneOf is read as anyOf. Keywords that are
// unknown, annotations and unknown formats say nothing, as the standard has it; keywords that say
// something and are not supported are errors that name the keyword and its path.
#ifndef TESSERA_MODELS_GENERATION_GRAMMAR_SCHEMA_FACTS_H_
#define TESSERA_MODELS_GENERATION_GRAMMAR_SCHEMA_FACTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "models/generation/grammar/decimal.h"
#include "nlohmann/json.hpp"

namespace tessera::models {

// The number that a value is, of any size; nullopt: the value is no number.
std::optional<Decimal> NumberOf(const nlohmann::ordered_json& value);

// Schemas that all hold. Pointers into the document, sorted.
using Schemas = std::vector<const nlohmann::ordered_json*>;

struct SchemaFacts {
  // Kinds of values, as bits. A number that need not be an integer is kInteger | kFraction.
  enum Kind : unsigned {
    kNull = 1,
    kBoolean = 2,
    kInteger = 4,
    kFraction = 8,
    kString = 16,
    kArray = 32,
    kObject = 64,
    kAny = 127
  };
  unsigned kinds = kAny;
  std::optional<std::vector<nlohmann::ordered_json>> values = {};  // enum, const

  DecimalRange range = {};
  std::optional<DecimalStep> multiple_of = {};

  int64_t min_length = 0;
  std::optional<int64_t> max_length = {};
  struct Pattern {
    std::string text;
    std::shared_ptr<const Dfa> automaton;
  };
  std::vector<Pattern> patterns = {};  // those of formats, too
  bool restricts_text() const { return min_length > 0 || max_length || !patterns.empty(); }

  int64_t min_items = 0;
  std::optional<int64_t> max_items = {};
  std::vector<Schemas> prefix_items = {};
  Schemas items = {};

  struct Property {
    std::string name;
    Schemas schemas;
    bool required = false;
  };
  std::vector<Property> properties = {};  // in order of declaration
  Schemas additional = {};
  int64_t min_properties = 0;
  std::optional<int64_t> max_properties = {};
};

class SchemaReader {
 public:
  // `where` begins messages: what the caller calls the document, which must outlive the reader.
  SchemaReader(const nlohmann::ordered_json& document, std::string where);

  StatusOr<std::vector<SchemaFacts>> Read(const Schemas& schemas) const;
  // What a schema's $ref names.
  StatusOr<const nlohmann::ordered_json*> Resolve(const nlohmann::ordered_json* schema) const;
  // "schema: 'properties.a': "; of the document itself "schema: ".
  std::string At(const nlohmann::ordered_json* schema, std::string_view keyword = "") const;

 private:
  class Merge;

  const nlohmann::ordered_json& document_;
  const std::string where_;
  std::map<const nlohmann::ordered_json*, std::string> paths_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_GRAMMAR_SCHEMA_FACTS_H_
