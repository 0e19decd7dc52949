// SPDX-License-Identifier: Apache-2.0
// JSON Schemas, which requests bring along, and texts under their grammars. The input is a schema,
// a zero byte, and a text.
#include <string>
#include <string_view>
#include <vector>

#include "models/generation/grammar/json_grammar.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

using nlohmann::ordered_json;

bool Run(std::string_view bytes) {
  const size_t end = bytes.find('\0');
  const ordered_json schema = ordered_json::parse(bytes.substr(0, end), nullptr, false);
  if (schema.is_discarded()) return false;
  const auto grammar = models::JsonSchemaGrammar(schema, "schema");
  if (!grammar.ok()) return false;
  models::GrammarState state(*grammar);
  if (end == std::string_view::npos) return true;
  for (const char byte : bytes.substr(end + 1)) {
    if (!state.Advance(static_cast<uint8_t>(byte))) break;
  }
  return true;
}

std::vector<std::string> Seeds() {
  using namespace std::string_literals;
  return {
      R"({"type":"object","properties":{"a":{"type":"integer","minimum":-5,"maximum":1e3},)"
      R"("b":{"$ref":"#/$defs/t"}},"required":["a"],"additionalProperties":{"type":"null"},)"
      R"("$defs":{"t":{"anyOf":[{"type":"array","items":{"$ref":"#/$defs/t"}},{"const":"x"}]}}})"s +
          "\0{\"a\": 12, \"b\": [\"x\"]}"s,
      R"({"type":"string","pattern":"^(a|b{2,3})[^c-e\\d]*$","minLength":1,"maxLength":9})"s +
          "\0\"abb\\u00e9\""s,
      R"({"allOf":[{"type":"number","exclusiveMinimum":0.25},{"multipleOf":3}]})"s +
          "\0"
          "12"s,
      R"({"enum":["a",{"k":[1,2.5,null]}],"oneOf":[true,{"type":["string","object"]}]})",
      R"({"type":"array","prefixItems":[{"format":"date-time"}],"items":false,"minItems":1})",
  };
}

const FuzzTargetRegistration registration(
    {.name = "json_schema",
     .run = Run,
     .seeds = Seeds,
     .words = {"\"type\":", "\"object\"", "\"properties\":", "\"required\":", "\"items\":",
               "\"anyOf\":", "\"allOf\":", "\"$ref\":\"#", "\"$defs\":", "\"pattern\":",
               "\"minLength\":", "\"maxItems\":", "\"enum\":", "\"additionalProperties\":"}});

}  // namespace
}  // namespace tessera::fuzz
