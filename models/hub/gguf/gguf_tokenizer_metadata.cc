// SPDX-License-Identifier: Apache-2.0
// The writing half, which the inference closure does not need.
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/sentence_piece/sentence_piece.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "models/hub/gguf/gguf_bpe.h"
#include "models/hub/gguf/gguf_sentence_piece.h"
#include "models/hub/gguf/gguf_tokenizer.h"
#include "models/hub/gguf/gguf_tokens.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

// As the folder's own model has it, whatever lies beside it.
StatusOr<std::unique_ptr<data::Tokenizer>> LoadFolder(const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const auto shown, data::TokenizerFolder::Open(folder));
  if (data::FindSentencePieceFile(shown) != nullptr) {
    return data::SentencePieceTokenizer::Load(folder);
  }
  return data::LoadTokenizer(folder);
}

StatusOr<GgufTokenizer> Describe(const data::Tokenizer& tokenizer, const std::string& folder,
                                 int64_t vocab_size) {
  if (const auto* pieces = dynamic_cast<const data::SentencePieceTokenizer*>(&tokenizer)) {
    return SentencePieceForGguf(*pieces, JoinPath(folder, pieces->config().model_file), vocab_size);
  }
  if (dynamic_cast<const data::ByteTokenizer*>(&tokenizer) != nullptr) {
    return ByteTokenizerForGguf(tokenizer, folder, vocab_size);
  }
  for (const data::TokenizerFile& file : tokenizer.FilesToSave()) {
    if (file.name != "tokenizer.json") continue;
    return BpeForGguf(tokenizer, file.content, JoinPath(folder, file.name), vocab_size);
  }
  return InvalidArgument(folder, ": this kind of tokenizer cannot be said in a GGUF file");
}

// The tokens that are around a prompt.
void AddRow(const data::Tokenizer& tokenizer, GgufMetadata* keys) {
  const data::RowTemplate* const row = tokenizer.row_template(/*pair=*/false);
  const bool has = row != nullptr && !row->items.empty();
  const bool bos = has && tokenizer.bos_id() && row->items.front().id == *tokenizer.bos_id();
  const bool eos = has && tokenizer.eos_id() && row->items.back().id == *tokenizer.eos_id();
  keys->emplace_back("tokenizer.ggml.add_bos_token", bos);
  keys->emplace_back("tokenizer.ggml.add_eos_token", eos);
}

// By name; the one for all conversations is "default".
StatusOr<std::map<std::string, std::string>> ChatTemplatesOf(const std::string& folder) {
  std::map<std::string, std::string> templates;
  const std::string config_path = JoinPath(folder, "tokenizer_config.json");
  if (PathExists(config_path)) {
    TESSERA_ASSIGN_OR_RETURN(const json config, ReadJsonFile(config_path));
    const json said = config.is_object() ? config.value("chat_template", json()) : json();
    if (said.is_string()) templates["default"] = said.get<std::string>();
    for (const json& one : said.is_array() ? said : json::array()) {
      const bool fits = one.is_object() && one.value("name", json()).is_string() &&
                        one.value("template", json()).is_string();
      if (fits) templates[one["name"].get<std::string>()] = one["template"].get<std::string>();
    }
  }
  const std::string path = JoinPath(folder, kChatTemplateFile);
  if (PathExists(path)) {
    TESSERA_ASSIGN_OR_RETURN(templates["default"], ReadFile(path));
  }
  const std::string others = JoinPath(folder, kChatTemplatesFolder);
  if (!IsDirectory(others)) return templates;
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListDirectory(others));
  for (const std::string& file : files) {
    if (!file.ends_with(kChatTemplateEnd)) continue;
    const std::string name = file.substr(0, file.size() - kChatTemplateEnd.size());
    TESSERA_ASSIGN_OR_RETURN(templates[name], ReadFile(JoinPath(others, file)));
  }
  return templates;
}

Status AddChatTemplates(const std::string& folder, GgufMetadata* keys) {
  TESSERA_ASSIGN_OR_RETURN(auto templates, ChatTemplatesOf(folder));
  std::vector<std::string> names;
  for (auto& [name, text] : templates) {
    std::string key(kGgufTemplateKey);
    if (name != "default") {
      key += "." + name;
      names.push_back(name);
    }
    if (!text.empty()) keys->emplace_back(std::move(key), std::move(text));
  }
  if (!names.empty()) keys->emplace_back(kGgufTemplateNamesKey, GgufArray(std::move(names)));
  return OkStatus();
}

// The ids of a key of generation_config.json, or of config.json.
StatusOr<std::vector<int64_t>> EndsOf(const std::string& folder) {
  std::vector<int64_t> ends;
  for (const char* file : {"generation_config.json", "config.json"}) {
    const std::string path = JoinPath(folder, file);
    if (!PathExists(path)) continue;
    TESSERA_ASSIGN_OR_RETURN(const json config, ReadJsonFile(path));
    const json said = config.is_object() ? config.value("eos_token_id", json()) : json();
    for (const json& id : said.is_array() ? said : json::array({said})) {
      if (id.is_number_integer()) ends.push_back(id.get<int64_t>());
    }
    if (!ends.empty()) break;
  }
  return ends;
}

// The tokenizer's end of text, and what else ends texts of the model; what llama.cpp knows by name
// needs no key.
Status AddEnds(const std::string& folder, std::optional<int32_t> eos, const GgufTokens& tokens,
               GgufMetadata* keys) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> ends, EndsOf(folder));
  const int64_t count = std::ssize(tokens.texts);
  std::erase_if(ends, [&](int64_t id) { return id < 0 || id >= count; });
  if (!eos && !ends.empty()) eos = static_cast<int32_t>(ends[0]);
  std::erase_if(
      ends, [&](int64_t id) { return id == eos || IsNamedEnd(tokens, static_cast<size_t>(id)); });
  if (eos) ends.insert(ends.begin(), *eos);
  // There are keys for three.
  for (size_t i = 0; i < std::min(ends.size(), std::size(kGgufEndKeys)); ++i) {
    keys->emplace_back(kGgufEndKeys[i], static_cast<uint32_t>(ends[i]));
  }
  return OkStatus();
}

}  // namespace

StatusOr<GgufMetadata> TokenizerMetadata(const std::string& folder, int64_t vocab_size) {
  GgufMetadata keys;
  if (!data::HasTokenizer(folder)) {
    keys.emplace_back("tokenizer.ggml.model", std::string("none"));
    return keys;
  }
  TESSERA_ASSIGN_OR_RETURN(const auto tokenizer, LoadFolder(folder));
  TESSERA_ASSIGN_OR_RETURN(GgufTokenizer made, Describe(*tokenizer, folder, vocab_size));
  const auto& types = made.tokens.types;
  const auto unknown = std::find(types.begin(), types.end(), GgufTokens::Piece::kUnknown);
  keys.emplace_back("tokenizer.ggml.model", made.model);
  keys.emplace_back("tokenizer.ggml.pre", made.pre);
  const auto id = [&keys](std::string_view key, std::optional<int32_t> value) {
    if (value) keys.emplace_back(key, static_cast<uint32_t>(*value));
  };
  id("tokenizer.ggml.bos_token_id", tokenizer->bos_id());
  TESSERA_RETURN_IF_ERROR(AddEnds(folder, tokenizer->eos_id(), made.tokens, &keys));
  if (unknown != types.end()) {
    id("tokenizer.ggml.unknown_token_id", static_cast<int32_t>(unknown - types.begin()));
  }
  id(kGgufPaddingKey, tokenizer->pad_id());
  keys.emplace_back("tokenizer.ggml.tokens", GgufArray(std::move(made.tokens.texts)));
  if (made.has_scores) {
    keys.emplace_back("tokenizer.ggml.scores", GgufArray(std::move(made.tokens.scores)));
  }
  keys.emplace_back("tokenizer.ggml.token_type", GgufArray(std::move(made.tokens.types)));
  if (!made.has_scores) {
    keys.emplace_back("tokenizer.ggml.merges", GgufArray(std::move(made.merges)));
  }
  AddRow(*tokenizer, &keys);
  keys.insert(keys.end(), made.more.begin(), made.more.end());
  TESSERA_RETURN_IF_ERROR(AddChatTemplates(folder, &keys));
  return keys;
}

}  // namespace tessera::models
