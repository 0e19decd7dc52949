// SPDX-License-Identifier: Apache-2.0
// Tokenizers in GGUF files: byte-level BPE ("gpt2" there, with the name of how it splits text) and
// SentencePiece's BPE ("llama").
//
//   TESSERA_ASSIGN_OR_RETURN(const FolderTexts files, TokenizerOfGguf(file));
//   TESSERA_ASSIGN_OR_RETURN(const GgufMetadata keys, TokenizerMetadata(folder, vocab_size));
//
// Ways of splitting texts without a name (gguf_bpe.h), and other kinds of tokenizers, are refused.
// Tessera's byte tokenizer becomes a byte-level BPE without merges, with the same ids, in which
// "<|endoftext|>" is found in texts. A chat template goes along.
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_TOKENIZER_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_TOKENIZER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/gguf/gguf_tokens.h"

namespace tessera::models {

// Where a GGUF file, and a folder, have their chat template.
inline constexpr std::string_view kGgufTemplateKey = "tokenizer.chat_template";
// Names of further templates; each has its text under the key before, a dot and its name.
inline constexpr std::string_view kGgufTemplateNamesKey = "tokenizer.chat_templates";
inline constexpr std::string_view kChatTemplatesFolder = "additional_chat_templates";
inline constexpr std::string_view kChatTemplateEnd = ".jinja";
inline constexpr std::string_view kChatTemplateFile = "chat_template.jinja";

// tokenizer.json or tokenizer.model, with what belongs to it. A file without a tokenizer gives
// nothing.
StatusOr<FolderTexts> TokenizerOfGguf(const GgufFile& file);

// The tokenizer.* keys for a folder's tokenizer, with a token for each of a model's `vocab_size`
// ids; of a folder without one, that there is none.
StatusOr<GgufMetadata> TokenizerMetadata(const std::string& folder, int64_t vocab_size);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_TOKENIZER_H_
