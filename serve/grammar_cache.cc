// SPDX-License-Identifier: Apache-2.0
#include "serve/grammar_cache.h"

#include <algorithm>

namespace tessera::serve {

std::shared_ptr<const models::Vocabulary> GrammarCache::VocabularyOf(
    const std::vector<std::string>& marks) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const models::Vocabulary>& vocabulary = vocabularies_[marks];
  if (vocabulary == nullptr) vocabulary = models::Vocabulary::Of(tokenizer_, marks);
  return vocabulary;
}

StatusOr<GrammarCache::Grammar> GrammarCache::OfSchema(const nlohmann::ordered_json& schema,
                                                       const std::string& where,
                                                       models::JsonObjects objects) {
  return OfTexts(schema, {{"", &schema}}, {}, where, objects);
}

StatusOr<GrammarCache::Grammar> GrammarCache::OfTexts(
    const nlohmann::ordered_json& document, const std::vector<models::JsonBehindText>& alternatives,
    const std::vector<std::string>& marks, const std::string& where, models::JsonObjects objects) {
  std::string key = objects == models::JsonObjects::kOpen ? "open " : "closed ";
  for (const auto& [text, schema] : alternatives) {
    if (!text.empty()) key += nlohmann::ordered_json(text).dump() + schema->dump();
  }
  key += document.dump();
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const auto& kept) { return kept.first == key; });
    if (found != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, found);
      return found->second;
    }
  }
  // Without the lock: one client's large schema does not hold up the others'.
  TESSERA_ASSIGN_OR_RETURN(models::ByteGrammar bytes,
                           models::JsonBehindTextGrammar(document, alternatives, where, objects));
  auto made = models::TokenGrammar::Of(std::move(bytes), VocabularyOf(marks));
  if (!made.ok()) return InvalidArgument(where, ": ", made.status().message());
  const std::lock_guard lock(mutex_);
  kept_.emplace_front(key, *made);
  if (kept_.size() > most_) kept_.pop_back();
  return kept_.front().second;
}

}  // namespace tessera::serve
