// SPDX-License-Identifier: Apache-2.0
// What a grammar costs each token beside the model: the mask, and applying it to the scores.
//
//   token_grammar_benchmark TOKENIZER
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/grammar/json_grammar.h"
#include "models/generation/grammar/token_grammar.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

const std::vector<std::pair<std::string, std::string>>& Schemas() {
  static const auto* schemas = new std::vector<std::pair<std::string, std::string>>{
      {"any object", R"({"type":"object"})"},
      {"person",
       R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer",)"
       R"("minimum":0,"maximum":130},"email":{"type":"string","format":"email"},)"
       R"("tags":{"type":"array","items":{"type":"string","maxLength":20},"maxItems":5}},)"
       R"("required":["name","age"],"additionalProperties":false})"},
      {"order",
       R"({"type":"object","properties":{"id":{"type":"string","format":"uuid"},"when":)"
       R"({"type":"string","format":"date-time"},"lines":{"type":"array","minItems":1,"items":)"
       R"({"type":"object","properties":{"article":{"type":"string","minLength":1,"maxLength":80},)"
       R"("count":{"type":"integer","minimum":1},"price":{"type":"number","minimum":0},)"
       R"("state":{"enum":["open","sent","lost"]}},"required":["article","count","price","state"],)"
       R"("additionalProperties":false}},"note":{"type":["string","null"]}},)"
       R"("required":["id","when","lines","note"],"additionalProperties":false})"},
      {"tree",
       R"({"$defs":{"node":{"type":"object","properties":{"label":{"type":"string"},"children":)"
       R"({"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["label","children"],)"
       R"("additionalProperties":false}},"$ref":"#/$defs/node"})"},
  };
  return *schemas;
}

// Random texts of up to `tokens` tokens, as many as there are `texts`.
void Measure(const std::string& name, const std::string& schema,
             const std::shared_ptr<const Vocabulary>& words, int64_t texts, int64_t tokens) {
  const auto begin = Clock::now();
  auto bytes = JsonSchemaGrammar(nlohmann::ordered_json::parse(schema), name);
  const auto grammar = *TokenGrammar::Of(*std::move(bytes), words);
  const double compile = MillisecondsSince(begin);
  const RandomKey key = RandomKey::FromSeed(1);
  std::vector<double> scores(static_cast<size_t>(words->size()));
  double total = 0;
  double most = 0;
  int64_t count = 0;
  for (int64_t t = 0; t < texts; ++t) {
    GrammarText text(grammar, false);
    for (int64_t i = 0; i < tokens && !text.finished(); ++i) {
      const auto step = Clock::now();
      const TokenMask mask = text.Allowed(tokens - i);
      std::fill(scores.begin(), scores.end(), 1.0);
      mask.Apply(scores);
      const double spent = MillisecondsSince(step);
      total += spent;
      most = std::max(most, spent);
      ++count;
      std::vector<int32_t> ids;
      for (int32_t id = 0; id < words->size(); ++id) {
        if (mask.Has(id)) ids.push_back(id);
      }
      const double u = UniformDouble(key, static_cast<uint64_t>(t * tokens + i));
      // Texts of a model are made of short strings: a token with a quote is likelier than most.
      int32_t id = ids[static_cast<size_t>(u * static_cast<double>(ids.size()))];
      for (size_t j = 0; j < ids.size() && i % 4 == 3; ++j) {
        if (words->Text(ids[j], false).find('"') != std::string_view::npos) id = ids[j];
      }
      text.Add(id);
    }
  }
  std::cout << name << ": compiled in " << compile << " ms; " << count << " tokens, "
            << total / static_cast<double>(count) << " ms per token, at most " << most << " ms\n";
}

}  // namespace
}  // namespace tessera::models

int main(int argc, char** argv) {
  using namespace tessera::models;
  if (argc != 2) {
    std::cerr << "usage: token_grammar_benchmark TOKENIZER\n";
    return 2;
  }
  const auto tokenizer = tessera::data::LoadTokenizer(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tessera::Message(tokenizer.status()) << "\n";
    return 1;
  }
  const auto begin = Clock::now();
  const auto words = Vocabulary::Of(**tokenizer);
  std::cout << words->size() << " tokens in a tree in " << MillisecondsSince(begin) << " ms\n";
  for (const auto& [name, schema] : Schemas()) Measure(name + ", once", schema, words, 1, 200);
  for (const auto& [name, schema] : Schemas()) Measure(name + ", 20 texts", schema, words, 20, 200);
}
