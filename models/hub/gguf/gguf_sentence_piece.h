// SPDX-License-Identifier: Apache-2.0
// SentencePiece's BPE: "llama" in GGUF files, tokenizer.model in folders.
//
//   TESSERA_ASSIGN_OR_RETURN(const FolderTexts files, SentencePieceOfGguf(file));
//   TESSERA_ASSIGN_OR_RETURN(GgufTokenizer made,
//                            SentencePieceForGguf(tokenizer, path, vocab_size));
//
// Refused are models other than BPE with pieces for bytes, as LLaMA's, and models with a character
// map, which GGUF files have no place for; of a GGUF file unused ids before others, since a piece's
// id is its place.
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_SENTENCE_PIECE_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_SENTENCE_PIECE_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "data/tokenizer/sentence_piece/sentence_piece.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/gguf/gguf_tokens.h"

namespace tessera::models {

// tokenizer.model and tokenizer_config.json.
StatusOr<FolderTexts> SentencePieceOfGguf(const GgufFile& file);

// `where` begins messages.
StatusOr<GgufTokenizer> SentencePieceForGguf(const data::SentencePieceTokenizer& tokenizer,
                                             const std::string& where, int64_t vocab_size);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_SENTENCE_PIECE_H_
