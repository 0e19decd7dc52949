// SPDX-License-Identifier: Apache-2.0
// The grammars of JSON Schemas that requests bring.
//
//   GrammarCache grammars(tokenizer);
//   TESSERA_ASSIGN_OR_RETURN(const auto grammar,
//       grammars.OfSchema({{"type", "object"}}, "response_format"));
//
// Clients ask with the same few schemas again and again, so the grammars asked for last are kept by
// the schema's text. Safe from several threads.
#ifndef TESSERA_SERVE_GRAMMAR_CACHE_H_
#define TESSERA_SERVE_GRAMMAR_CACHE_H_

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/grammar/json_grammar.h"
#include "models/generation/grammar/token_grammar.h"
#include "nlohmann/json.hpp"

namespace tessera::serve {

class GrammarCache {
 public:
  using Grammar = std::shared_ptr<const models::TokenGrammar>;

  // The tokenizer outlives the cache.
  explicit GrammarCache(const data::Tokenizer& tokenizer, size_t most = 32)
      : tokenizer_(tokenizer), most_(most) {}

  // InvalidArgument: a schema that is malformed or not supported, by its keyword and path behind
  // `where`; or the tokens cannot write its values.
  StatusOr<Grammar> OfSchema(const nlohmann::ordered_json& schema, const std::string& where,
                             models::JsonObjects objects = models::JsonObjects::kOpen);

  // One of the values behind texts (models::JsonBehindTextGrammar). `marks`: special tokens that
  // may write those texts.
  StatusOr<Grammar> OfTexts(const nlohmann::ordered_json& document,
                            const std::vector<models::JsonBehindText>& alternatives,
                            const std::vector<std::string>& marks, const std::string& where,
                            models::JsonObjects objects);

 private:
  std::shared_ptr<const models::Vocabulary> VocabularyOf(const std::vector<std::string>& marks);

  const data::Tokenizer& tokenizer_;
  const size_t most_;
  std::mutex mutex_;  // over what follows
  std::map<std::vector<std::string>, std::shared_ptr<const models::Vocabulary>> vocabularies_;
  std::list<std::pair<std::string, Grammar>> kept_;  // the one that was asked for last is first
};

}  // namespace tessera::serve

#endif  // TESSERA_SERVE_GRAMMAR_CACHE_H_
