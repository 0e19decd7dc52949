// SPDX-License-Identifier: Apache-2.0
#include "models/generation/special_tokens.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "data/tokenizer/sequence_pair.h"
#include "models/family.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

const TextConventions& TextsOf(const nlohmann::json& config) {
  static const auto* const none = new TextConventions;
  const StatusOr<const Family*> family = FamilyOf(config);
  return family.ok() ? (*family)->texts : *none;
}

bool Given(const nlohmann::json& config, const std::string& key) {
  return config.contains(key) && !config[key].is_null();
}

bool HasBlank(const BlankTokens& blanks, const data::Tokenizer& tokenizer,
              const std::vector<int32_t>& ids) {
  const std::optional<int32_t> known[] = {blanks.span.find(tokenizer),
                                          blanks.sentence.find(tokenizer),
                                          blanks.document.find(tokenizer)};
  return std::any_of(ids.begin(), ids.end(), [&](int32_t id) {
    return std::find(std::begin(known), std::end(known), id) != std::end(known);
  });
}

}  // namespace

bool LacksTokenIds(const nlohmann::json& config) {
  const std::vector<TokenKey>& keys = TextsOf(config).token_keys;
  return std::any_of(keys.begin(), keys.end(), [&](const TokenKey& key) {
    return key.needed && key.left_to_tokenizer && !Given(config, key.key);
  });
}

nlohmann::json TokenIdsFromTokenizer(const data::Tokenizer& tokenizer,
                                     const nlohmann::json& config) {
  nlohmann::json changes = nlohmann::json::object();
  for (const TokenKey& key : TextsOf(config).token_keys) {
    if (!key.left_to_tokenizer || Given(config, key.key)) continue;
    if (const auto id = key.token.find(tokenizer)) changes[key.key] = *id;
  }
  return changes;
}

nlohmann::json VocabularyOf(const data::Tokenizer& tokenizer, const nlohmann::json& preset) {
  nlohmann::json keys;
  const char* const padded = "padded_vocab_size";  // ChatGLM2's name of it
  keys[preset.contains(padded) ? padded : "vocab_size"] = tokenizer.vocab_size();
  const auto set = [&](const std::string& key, std::optional<int32_t> id) {
    if (preset.contains(key)) keys[key] = id ? nlohmann::json(*id) : nlohmann::json();
  };
  set("eos_token_id", tokenizer.eos_id());
  set("bos_token_id", tokenizer.bos_id() ? tokenizer.bos_id() : tokenizer.eos_id());
  set("pad_token_id", tokenizer.pad_id());
  for (const TokenKey& key : TextsOf(preset).token_keys) set(key.key, key.token.find(tokenizer));
  return keys;
}

StatusOr<std::vector<int64_t>> EncodePrompt(const data::Tokenizer& tokenizer,
                                            const nlohmann::json& config, std::string_view text,
                                            const data::EncodeOptions& options) {
  std::vector<int32_t> ids = tokenizer.Encode(text, options);
  const std::optional<BlankTokens>& blanks = TextsOf(config).blanks;
  if (blanks && !HasBlank(*blanks, tokenizer, ids)) {
    if (const auto id = blanks->document.find(tokenizer)) ids.push_back(*id);
  }
  if (tokenizer.prompts_are_rows()) {
    TESSERA_ASSIGN_OR_RETURN(data::EncodedRow row, data::BuildRow(tokenizer, std::move(ids)));
    ids = std::move(row.ids);
  }
  return std::vector<int64_t>(ids.begin(), ids.end());
}

}  // namespace tessera::models
