// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_tokens.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTokens = 1 << 22;
// What llama.cpp gives unused tokens.
constexpr float kUnusedScore = -10000;

constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";

constexpr std::string_view kNamedEnds[] = {
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>",    "<|end|>", "<|endoftext|>", "<|end_of_text|>",
    "<EOT>",      "_<EOT>",     "<end_of_turn>", "[EOT]",   "[EOS]",         "<end_of_utterance>"};

// The text of the token that a key names; nullopt: there is no such key.
StatusOr<std::optional<std::string>> TokenAt(const GgufFile& file, const GgufTokens& tokens,
                                             std::string_view key) {
  int64_t id = -1;
  TESSERA_RETURN_IF_ERROR(file.Read(key, &id));
  const bool beyond = id >= std::ssize(tokens.texts);
  // Older files of models that gained no row for it have such a padding token.
  const bool is_absent = file.FindValue(key) == nullptr || (beyond && key == kGgufPaddingKey);
  if (is_absent) return std::optional<std::string>();
  if (id < 0 || beyond) {
    return InvalidArgument(file.path(), ": key '", key, "': there is no token ", id);
  }
  return std::optional(tokens.texts[static_cast<size_t>(id)]);
}

struct Role {
  const char* name;  // in tokenizer_config.json
  std::string_view key;
};
constexpr Role kRoles[] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                           {"eos_token", "tokenizer.ggml.eos_token_id"},
                           {"unk_token", "tokenizer.ggml.unknown_token_id"},
                           {"pad_token", kGgufPaddingKey}};

}  // namespace

GgufTokens::GgufTokens(int64_t count) {
  for (int64_t id = 0; id < count; ++id) texts.push_back(Concat("[PAD", id, "]"));
  types.assign(texts.size(), Piece::kUnused);
  scores.assign(texts.size(), kUnusedScore);
}

Status GgufTokens::Set(const std::string& where, int64_t id, std::string text, int32_t type,
                       float score) {
  if (id < 0 || id >= std::ssize(texts)) {
    return InvalidArgument(where, ": token ", id, " is outside of the model's vocabulary (",
                           texts.size(), ")");
  }
  const auto at = static_cast<size_t>(id);
  texts[at] = std::move(text);
  types[at] = type;
  scores[at] = score;
  return OkStatus();
}

bool IsNamedEnd(const GgufTokens& tokens, size_t id) {
  return tokens.types[id] == GgufTokens::Piece::kControl &&
         std::ranges::find(kNamedEnds, tokens.texts[id]) != std::end(kNamedEnds);
}

StatusOr<std::vector<int64_t>> EndsOfGguf(const GgufFile& file) {
  std::vector<int64_t> ends;
  if (file.FindValue(kTokensKey) == nullptr) return ends;
  TESSERA_ASSIGN_OR_RETURN(const GgufTokens tokens, ReadGgufTokens(file));
  const int64_t count = std::ssize(tokens.texts);
  const auto add = [&](int64_t id) {
    const bool known = std::ranges::find(ends, id) != ends.end();
    if (id >= 0 && id < count && !known) ends.push_back(id);
  };
  for (const std::string_view key : kGgufEndKeys) {
    int64_t id = -1;
    TESSERA_RETURN_IF_ERROR(file.Read(key, &id));
    add(id);
  }
  for (int64_t id = 0; id < count; ++id) {
    if (IsNamedEnd(tokens, static_cast<size_t>(id))) add(id);
  }
  return ends;
}

bool GgufTokens::IsPadding(size_t id) const {
  return types[id] == Piece::kUnused && texts[id] == Concat("[PAD", id, "]");
}

StatusOr<GgufTokens> ReadGgufTokens(const GgufFile& file) {
  GgufTokens tokens(0);
  TESSERA_RETURN_IF_ERROR(file.Read(kTokensKey, &tokens.texts));
  const size_t count = tokens.texts.size();
  tokens.types.assign(count, GgufTokens::Piece::kNormal);
  tokens.scores.assign(count, 0);
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.token_type", &tokens.types));
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.scores", &tokens.scores));
  if (count == 0 || static_cast<int64_t>(count) > kMaxTokens || tokens.types.size() != count ||
      tokens.scores.size() != count) {
    return InvalidArgument(file.path(),
                           ": 'tokenizer.ggml.tokens', 'token_type' and 'scores' have ", count,
                           ", ", tokens.types.size(), " and ", tokens.scores.size(), " elements");
  }
  return tokens;
}

StatusOr<json> TokenizerConfigOf(const GgufFile& file, const GgufTokens& tokens, bool add_bos) {
  json config = json::object();
  for (const Role& role : kRoles) {
    TESSERA_ASSIGN_OR_RETURN(const auto token, TokenAt(file, tokens, role.key));
    if (token) config[role.name] = *token;
  }
  bool add_eos = false;
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.add_bos_token", &add_bos));
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.add_eos_token", &add_eos));
  config["add_bos_token"] = add_bos && config.contains("bos_token");
  config["add_eos_token"] = add_eos && config.contains("eos_token");
  return config;
}

MountedFolder::Files MountedTexts(const FolderTexts& texts) {
  MountedFolder::Files files;
  for (const auto& [name, content] : texts) {
    const auto owner = std::make_shared<const std::string>(content);
    files.emplace(name, MountedFile::OfBytes(owner->data(), std::ssize(*owner), owner));
  }
  return files;
}

std::string ConfigText(const json& config) {
  return config.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace tessera::models
