// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/declared_tokens.h"

#include <algorithm>
#include <unordered_map>

#include "base/file.h"
#include "base/json_text.h"
#include "base/options.h"
#include "data/tokenizer/vocab_index.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using nlohmann::json;

constexpr const char* kKeys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                 "pad_token", "cls_token", "mask_token"};

const json& At(const json& object, const char* key) {
  static const json* const null = new json();
  const auto at = object.find(key);
  return at == object.end() ? *null : *at;
}

// Of "</s>" or {"content": "</s>", ...}.
StatusOr<AddedToken> ReadToken(const json& item, const std::string& path, std::string_view key) {
  const json& content = item.is_object() ? At(item, "content") : item;
  if (!content.is_string() || content.get_ref<const std::string&>().empty()) {
    return InvalidArgument(path, ": ", key, " is not a text");
  }
  AddedToken token{.content = content.get<std::string>(), .id = -1};
  if (!item.is_object()) return token;
  token.normalized = false;
  TESSERA_RETURN_IF_ERROR(ReadMember(item, "lstrip", path, &token.lstrip));
  TESSERA_RETURN_IF_ERROR(ReadMember(item, "rstrip", path, &token.rstrip));
  TESSERA_RETURN_IF_ERROR(ReadMember(item, "normalized", path, &token.normalized));
  TESSERA_RETURN_IF_ERROR(ReadMember(item, "single_word", path, &token.single_word));
  return token;
}

Status CheckId(int64_t id, const std::string& content, const std::string& path) {
  if (id >= 0 && id < kMaxTokenId) return OkStatus();
  return InvalidArgument(path, ": added token ", content, " has id ", id, ", which is not in [0, ",
                         kMaxTokenId, ")");
}

// Both files name tokens alike; the first that names one counts.
Status ReadNames(const json& root, const std::string& path, DeclaredTokens* declared) {
  for (const char* key : kKeys) {
    const json& item = At(root, key);
    const bool empty = item.is_string() && item.get_ref<const std::string&>().empty();
    if (item.is_null() || empty || declared->NameOf(key) != nullptr) continue;
    TESSERA_ASSIGN_OR_RETURN(AddedToken token, ReadToken(item, path, key));
    declared->named.emplace_back(key, std::move(token));
  }
  TESSERA_ASSIGN_OR_RETURN(const auto extra, ReadExtraTokens(root, path));
  if (extra && declared->extra.empty()) declared->extra = *extra;
  return OkStatus();
}

// added_tokens.json: {"text": id, ...}, as older versions of transformers write it.
Status ReadAddedTokensFile(const std::string& path, DeclaredTokens* declared) {
  TESSERA_ASSIGN_OR_RETURN(const json root, ReadJsonFile(path));
  if (!root.is_object()) return InvalidArgument(path, ": not a JSON object");
  for (const auto& [content, id] : root.items()) {
    if (content.empty() || !id.is_number_integer()) {
      return InvalidArgument(path, ": an added token needs a content and an id");
    }
    TESSERA_RETURN_IF_ERROR(CheckId(id.get<int64_t>(), content, path));
    AddedToken token{.content = content, .id = id.get<int32_t>()};
    token.special =
        FindByContent(declared->extra, content) != nullptr ||
        std::any_of(declared->named.begin(), declared->named.end(),
                    [&, &name = content](const auto& n) { return n.second.content == name; });
    token.normalized = !token.special;
    declared->with_ids.push_back(std::move(token));
  }
  SortById(&declared->with_ids);
  return OkStatus();
}

}  // namespace

StatusOr<std::optional<std::vector<AddedToken>>> ReadExtraTokens(const json& root,
                                                                 const std::string& path) {
  std::optional<std::vector<AddedToken>> tokens;
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const json& list = At(root, key);
    if (list.is_null()) continue;
    if (!list.is_array() && !list.is_object()) {
      return InvalidArgument(path, ": ", key, " is neither an array nor an object");
    }
    if (!tokens) tokens.emplace();
    for (const json& item : list) {
      TESSERA_ASSIGN_OR_RETURN(AddedToken token, ReadToken(item, path, key));
      if (FindByContent(*tokens, token.content) == nullptr) tokens->push_back(std::move(token));
    }
  }
  return tokens;
}

Status ReadAddedTokensDecoder(const json& decoder, const std::string& path,
                              std::vector<AddedToken>* tokens) {
  if (decoder.is_null()) return OkStatus();
  if (!decoder.is_object()) {
    return InvalidArgument(path, ": added_tokens_decoder is not an object");
  }
  for (const auto& [key, item] : decoder.items()) {
    const bool number =
        !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!number || !item.is_object()) {
      return InvalidArgument(path, ": an added token needs a content and an id >= 0");
    }
    TESSERA_ASSIGN_OR_RETURN(AddedToken token, ReadToken(item, path, "an added token"));
    token.id = std::stoi(key);
    TESSERA_RETURN_IF_ERROR(CheckId(token.id, token.content, path));
    token.special = false;
    TESSERA_RETURN_IF_ERROR(ReadMember(item, "special", path, &token.special));
    token.normalized = !token.special;
    TESSERA_RETURN_IF_ERROR(ReadMember(item, "normalized", path, &token.normalized));
    tokens->push_back(std::move(token));
  }
  SortById(tokens);
  return OkStatus();
}

StatusOr<std::vector<AddedToken>> ReadAddedTokens(const JsonPart& part) {
  if (!part.is_null() && !part.value().is_array()) return part.Wrong("not an array");
  std::vector<AddedToken> tokens;
  for (size_t i = 0; i < part.size(); ++i) {
    const JsonPart item = part[i];
    AddedToken token;
    TESSERA_ASSIGN_OR_RETURN(token.content, item.Text("content", ""));
    TESSERA_ASSIGN_OR_RETURN(const int64_t id, item.Count("id", kMaxTokenId));
    if (token.content.empty() || id >= kMaxTokenId) {
      return item.Wrong(
          Concat("an added token needs a content and an id in [0, ", kMaxTokenId, ")"));
    }
    token.id = static_cast<int32_t>(id);
    TESSERA_ASSIGN_OR_RETURN(token.special, item.Bool("special", false));
    TESSERA_ASSIGN_OR_RETURN(token.lstrip, item.Bool("lstrip", false));
    TESSERA_ASSIGN_OR_RETURN(token.rstrip, item.Bool("rstrip", false));
    TESSERA_ASSIGN_OR_RETURN(token.normalized, item.Bool("normalized", !token.special));
    TESSERA_ASSIGN_OR_RETURN(token.single_word, item.Bool("single_word", false));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

StatusOr<DeclaredTokens> ReadDeclaredTokens(const std::string& folder) {
  DeclaredTokens declared;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = JoinPath(folder, name);
    if (!PathExists(path)) continue;
    TESSERA_ASSIGN_OR_RETURN(const json root, ReadJsonFile(path));
    if (!root.is_object()) return InvalidArgument(path, ": not a JSON object");
    TESSERA_RETURN_IF_ERROR(ReadNames(root, path, &declared));
    TESSERA_RETURN_IF_ERROR(
        ReadAddedTokensDecoder(At(root, "added_tokens_decoder"), path, &declared.with_ids));
  }
  const std::string path = JoinPath(folder, "added_tokens.json");
  if (declared.with_ids.empty() && PathExists(path)) {
    TESSERA_RETURN_IF_ERROR(ReadAddedTokensFile(path, &declared));
  }
  return declared;
}

const std::string* DeclaredTokens::NameOf(std::string_view key) const {
  for (const auto& [known, token] : named) {
    if (known == key) return &token.content;
  }
  return nullptr;
}

void DeclaredTokens::AddTo(
    const std::function<std::optional<int32_t>(const std::string&)>& find_piece, int64_t vocab_size,
    std::vector<AddedToken>* added) const {
  int64_t next = vocab_size;
  std::unordered_map<std::string, size_t> places;
  for (size_t i = 0; i < added->size(); ++i) {
    places.emplace((*added)[i].content, i);
    next = std::max<int64_t>(next, (*added)[i].id + int64_t{1});
  }
  const auto add = [&](AddedToken token) {
    const auto [known, is_new] = places.emplace(token.content, added->size());
    if (!is_new) {
      AddedToken& there = (*added)[known->second];
      if (token.id == there.id) there = std::move(token);
      return;
    }
    token.id = find_piece(token.content).value_or(static_cast<int32_t>(next));
    next = std::max<int64_t>(next, token.id + int64_t{1});
    added->push_back(std::move(token));
  };
  for (const AddedToken& token : with_ids) add(token);
  for (const auto& [key, token] : named) add(token);
  for (const AddedToken& token : extra) add(token);
}

}  // namespace tessera::data
