// SPDX-License-Identifier: Apache-2.0
// Texts that a model without any sense would write under a schema's grammar; json_schemas.py reads
// them with another validator.
//
//   json_walks TOKENIZER < cases.jsonl > answers.jsonl
//
// A case: {"schema": ..., "seed": 1, "tokens": 60, "documents": ["..."]}. Its answer:
// {"text": ..., "closed": ..., "possible": ..., "accepted": [...]} or {"error": ...}. "possible"
// says whether the tokens were enough at the beginning.
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/grammar/json_grammar.h"
#include "models/generation/grammar/token_grammar.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::ordered_json;

ordered_json AnswerTo(const ordered_json& given, const std::shared_ptr<const Vocabulary>& words) {
  StatusOr<ByteGrammar> bytes = JsonSchemaGrammar(given["schema"], "schema");
  if (!bytes.ok()) return {{"error", Message(bytes.status())}};
  ordered_json accepted = ordered_json::array();
  for (const ordered_json& document : given["documents"]) {
    GrammarState state(*bytes);
    accepted.push_back(state.Advance(document.get<std::string>()) && state.complete());
  }
  auto grammar = TokenGrammar::Of(*std::move(bytes), words);
  if (!grammar.ok()) return {{"error", Message(grammar.status())}};
  const auto tokens = given["tokens"].get<int64_t>();
  const RandomKey key = RandomKey::FromSeed(given["seed"].get<uint64_t>());
  GrammarText text(*grammar, false);
  std::string written;
  const bool possible =
      (*grammar)->TokensToComplete({{(*grammar)->grammar().start(), nullptr}}) <= tokens;
  for (int64_t i = 0; i < tokens && !text.finished(); ++i) {
    const TokenMask mask = text.Allowed(tokens - i);
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < words->size(); ++id) {
      if (mask.Has(id)) ids.push_back(id);
    }
    if (ids.empty()) return {{"error", "no token may follow " + written}};
    const double u = UniformDouble(key, static_cast<uint64_t>(i));
    const int32_t id = ids[static_cast<size_t>(u * static_cast<double>(ids.size()))];
    if (!text.Add(id)) return {{"error", "a token of the mask was refused after " + written}};
    written += words->Text(id, false);
    if (text.complete() && u > 0.9) break;
  }
  return {{"text", written},
          {"closed", text.complete()},
          {"possible", possible},
          {"accepted", accepted}};
}

int Run(const std::string& tokenizer_name) {
  const auto tokenizer = data::LoadTokenizer(tokenizer_name);
  if (!tokenizer.ok()) {
    std::cerr << Message(tokenizer.status()) << "\n";
    return 1;
  }
  const auto words = Vocabulary::Of(**tokenizer);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << AnswerTo(ordered_json::parse(line), words)
                     .dump(-1, ' ', true, ordered_json::error_handler_t::replace)
              << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace tessera::models

int main(int argc, char** argv) {
  if (argc == 2) return tessera::models::Run(argv[1]);
  std::cerr << "usage: json_walks TOKENIZER < cases.jsonl\n";
  return 2;
}
