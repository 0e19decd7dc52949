// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_sentence_piece.h"

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/sentence_piece/model_message.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using data::SentencePieceSpec;
using nlohmann::json;
using Piece = GgufTokens::Piece;

// Messages of Protocol Buffers.
void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}
void AppendNumber(uint32_t field, int64_t value, std::string* out) {
  AppendVarint(field << 3, out);
  AppendVarint(static_cast<uint64_t>(value), out);
}
void AppendFloat(uint32_t field, float value, std::string* out) {
  AppendVarint(field << 3 | 5, out);
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void AppendBytes(uint32_t field, std::string_view bytes, std::string* out) {
  AppendVarint(field << 3 | 2, out);
  AppendVarint(bytes.size(), out);
  out->append(bytes);
}

// The blank in SentencePiece's pieces. User-defined ones have a plain blank in GGUF files.
constexpr std::string_view kBlank = "▁";

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// Of files that give no token the type of the unknown one, the one that a key names, or the first.
Status NameUnknown(const GgufFile& file, GgufTokens* tokens) {
  int64_t id = 0;
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.unknown_token_id", &id));
  for (const int32_t type : tokens->types) {
    if (type == Piece::kUnknown) return OkStatus();
  }
  if (id >= 0 && id < std::ssize(tokens->types)) {
    tokens->types[static_cast<size_t>(id)] = Piece::kUnknown;
  }
  return OkStatus();
}

// Whether control tokens take the blanks behind them, which files do not say: Phi-3's do, and
// llama.cpp tells that by the model's name.
StatusOr<bool> TakesBlanks(const GgufFile& file) {
  std::string architecture, name;
  TESSERA_RETURN_IF_ERROR(file.Read("general.architecture", &architecture));
  TESSERA_RETURN_IF_ERROR(file.Read("general.name", &name));
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return architecture == "phi3" || name.find("phi-3") != name.npos ||
         name.find("phi3") != name.npos;
}

// A SentencePiece model (sentencepiece_model.proto has the fields).
std::string ModelOf(const GgufTokens& tokens, bool dummy_prefix, bool remove_extra_whitespaces) {
  std::string model;
  bool has_bytes = false;
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    if (tokens.IsPadding(id)) continue;
    std::string piece;
    const bool defined = tokens.types[id] == Piece::kUserDefined;
    AppendBytes(1, defined ? Replaced(tokens.texts[id], " ", kBlank) : tokens.texts[id], &piece);
    AppendFloat(2, tokens.scores[id], &piece);
    if (tokens.types[id] != Piece::kNormal) AppendNumber(3, tokens.types[id], &piece);
    AppendBytes(1, piece, &model);
    has_bytes = has_bytes || tokens.types[id] == Piece::kByte;
  }
  std::string trainer;
  AppendNumber(3, SentencePieceSpec::kBpe, &trainer);
  AppendNumber(35, has_bytes ? 1 : 0, &trainer);
  AppendBytes(2, trainer, &model);
  std::string normalizer;
  AppendBytes(1, "identity", &normalizer);
  AppendNumber(3, dummy_prefix ? 1 : 0, &normalizer);
  AppendNumber(4, remove_extra_whitespaces ? 1 : 0, &normalizer);
  AppendBytes(3, normalizer, &model);
  return model;
}

}  // namespace

StatusOr<FolderTexts> SentencePieceOfGguf(const GgufFile& file) {
  TESSERA_ASSIGN_OR_RETURN(GgufTokens tokens, ReadGgufTokens(file));
  TESSERA_RETURN_IF_ERROR(NameUnknown(file, &tokens));
  TESSERA_ASSIGN_OR_RETURN(json config, TokenizerConfigOf(file, tokens, /*add_bos=*/true));
  bool prefix = true;
  bool remove_extra = false;
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.add_space_prefix", &prefix));
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.remove_extra_whitespaces", &remove_extra));
  config["tokenizer_class"] = "LlamaTokenizer";
  config["add_prefix_space"] = prefix;
  TESSERA_ASSIGN_OR_RETURN(const bool takes_blanks, TakesBlanks(file));
  json added = json::object();
  size_t end = 0;
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    if (tokens.types[id] == Piece::kControl) {
      const std::string& text = tokens.texts[id];
      json& token = added[std::to_string(id)];
      token = {{"content", text}, {"special", true}};
      if (takes_blanks && text != "<s>" && text != "<unk>" && text != "<|endoftext|>") {
        token["rstrip"] = true;
      }
    }
    // A piece's id is its place.
    if (tokens.IsPadding(id)) continue;
    if (id != end++) {
      return InvalidArgument(file.path(), ": 'tokenizer.ggml.tokens': unused ids are before ", id);
    }
  }
  if (!added.empty()) config["added_tokens_decoder"] = std::move(added);
  return FolderTexts{{"tokenizer.model", ModelOf(tokens, prefix, remove_extra)},
                     {kTokenizerConfig, ConfigText(config)}};
}

StatusOr<GgufTokenizer> SentencePieceForGguf(const data::SentencePieceTokenizer& tokenizer,
                                             const std::string& where, int64_t vocab_size) {
  const data::SentencePieceConfig& config = tokenizer.config();
  const SentencePieceSpec spec = data::ReadSentencePieceSpec(config.model);
  if (config.family != data::SentencePieceFamily::kLlama ||
      spec.model_type != SentencePieceSpec::kBpe || !spec.byte_fallback) {
    return InvalidArgument(where, ": is no BPE model with bytes as LLaMA's, which GGUF files need");
  }
  if (!spec.normalizer.character_map.empty()) {
    return InvalidArgument(where, ": its character map cannot be said in a GGUF file");
  }
  GgufTokenizer made = {
      .model = "llama", .pre = "default", .tokens = GgufTokens(vocab_size), .has_scores = true};
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const Piece& piece = spec.pieces[i];
    const bool defined = piece.type == Piece::kUserDefined;
    TESSERA_RETURN_IF_ERROR(made.tokens.Set(
        where, static_cast<int64_t>(i), defined ? Replaced(piece.text, kBlank, " ") : piece.text,
        piece.type, piece.score));
  }
  std::vector<data::AddedToken> added = config.added_tokens;
  for (const data::SpecialToken& token : tokenizer.special_tokens()) {
    added.push_back({.content = token.content, .id = token.id});
  }
  for (const data::AddedToken& token : added) {
    const int32_t type = token.special ? Piece::kControl : Piece::kUserDefined;
    if (token.id < std::ssize(spec.pieces)) {
      const auto at = static_cast<size_t>(token.id);
      if (token.special && data::IsTextPiece(spec.pieces[at])) made.tokens.types[at] = type;
    } else {
      TESSERA_RETURN_IF_ERROR(made.tokens.Set(where, token.id, token.content, type));
    }
  }
  const bool prefix = spec.normalizer.add_dummy_prefix && config.add_prefix_space;
  made.more.emplace_back("tokenizer.ggml.add_space_prefix", prefix);
  made.more.emplace_back("tokenizer.ggml.remove_extra_whitespaces",
                         spec.normalizer.remove_extra_whitespaces);
  return made;
}

}  // namespace tessera::models
