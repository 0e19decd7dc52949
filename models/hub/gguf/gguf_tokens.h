// SPDX-License-Identifier: Apache-2.0
// What both kinds of tokenizers in GGUF files (gguf_bpe.h, gguf_sentence_piece.h) are made of: a
// list of tokens, and tokenizer_config.json beside it.
//
//   TESSERA_ASSIGN_OR_RETURN(const GgufTokens tokens, ReadGgufTokens(file));
//   TESSERA_ASSIGN_OR_RETURN(json config, TokenizerConfigOf(file, tokens, /*add_bos=*/false));
//   config["tokenizer_class"] = "GPT2Tokenizer";
//   files[kTokenizerConfig] = ConfigText(config);
//
//   GgufTokens made(vocab_size);
//   TESSERA_RETURN_IF_ERROR(made.Set(where, 0, "<s>", GgufTokens::Piece::kControl));
//
// Lists of different lengths, and ids that are none of the tokens', are InvalidArgument with the
// file.
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_TOKENS_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_text.h"
#include "base/mounted_folder.h"
#include "base/status.h"
#include "data/tokenizer/sentence_piece/model_message.h"
#include "models/hub/gguf/gguf_file.h"

namespace tessera::models {

// The tokens of a file; their places are their ids.
struct GgufTokens {
  using Piece = data::SentencePieceSpec::Piece;  // its types are GGUF's types of tokens
  // What llama.cpp gives tokens that have none of their own.
  static constexpr float kAddedScore = -1000;

  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::vector<float> scores;  // of SentencePiece's

  // With unused ones for all ids.
  explicit GgufTokens(int64_t count);
  // `where` begins the message about an id that is none of theirs.
  Status Set(const std::string& where, int64_t id, std::string text, int32_t type,
             float score = kAddedScore);
  // Whether it only fills the vocabulary up.
  bool IsPadding(size_t id) const;
};

StatusOr<GgufTokens> ReadGgufTokens(const GgufFile& file);

// tokenizer_config.json; `add_bos` holds where the file does not say it.
StatusOr<nlohmann::json> TokenizerConfigOf(const GgufFile& file, const GgufTokens& tokens,
                                           bool add_bos);
// What llama.cpp ends texts at: the tokens of three keys, the end of text's first, and control
// tokens that it knows by their names.
StatusOr<std::vector<int64_t>> EndsOfGguf(const GgufFile& file);
bool IsNamedEnd(const GgufTokens& tokens, size_t id);
inline constexpr std::string_view kGgufPaddingKey = "tokenizer.ggml.padding_token_id";
inline constexpr std::string_view kGgufEndKeys[] = {
    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
// A name from the file need not be UTF-8.
std::string ConfigText(const nlohmann::json& config);

// Files of a folder, by name.
using FolderTexts = std::map<std::string, std::string>;
// To be mounted.
MountedFolder::Files MountedTexts(const FolderTexts& texts);
inline constexpr char kTokenizerConfig[] = "tokenizer_config.json";

// A tokenizer, as GGUF files describe it.
struct GgufTokenizer {
  std::string model;
  std::string pre = {};
  GgufTokens tokens;
  std::vector<std::string> merges = {};  // of BPE's
  bool has_scores = false;
  GgufMetadata more = {};  // keys of this kind alone
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_TOKENS_H_
