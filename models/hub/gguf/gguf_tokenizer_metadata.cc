// SPDX-License-Identifier: Apache-2.0
// The writing half, which the inference closure does not need.
#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

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

// "": there is none.
StatusOr<std::string> ChatTemplateOf(const std::string& folder) {
  const std::string path = JoinPath(folder, kChatTemplateFile);
  if (PathExists(path)) return ReadFile(path);
  const std::string config_path = JoinPath(folder, "tokenizer_config.json");
  if (!PathExists(config_path)) return std::string();
  TESSERA_ASSIGN_OR_RETURN(const json config, ReadJsonFile(config_path));
  const json text = config.is_object() ? config.value("chat_template", json()) : json();
  return text.is_string() ? text.get<std::string>() : std::string();
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
  id("tokenizer.ggml.eos_token_id", tokenizer->eos_id());
  if (unknown != types.end()) {
    id("tokenizer.ggml.unknown_token_id", static_cast<int32_t>(unknown - types.begin()));
  }
  id("tokenizer.ggml.padding_token_id", tokenizer->pad_id());
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
  TESSERA_ASSIGN_OR_RETURN(std::string chat, ChatTemplateOf(folder));
  if (!chat.empty()) keys.emplace_back(kGgufTemplateKey, std::move(chat));
  return keys;
}

}  // namespace tessera::models
