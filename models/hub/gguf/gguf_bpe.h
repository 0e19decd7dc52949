// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE: "gpt2" in GGUF files, tokenizer.json in folders.
//
//   TESSERA_ASSIGN_OR_RETURN(const FolderTexts files, BpeOfGguf(file));
//   TESSERA_ASSIGN_OR_RETURN(GgufTokenizer made, BpeForGguf(tokenizer, text, path, vocab_size));
//
// A GGUF file names how texts are split before merging (data/tokenizer/split_patterns.h; llama.cpp
// has several names for some of them). Other names, and in a tokenizer.json other patterns and
// other kinds of models, are refused, with the names there are.
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_BPE_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_BPE_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/gguf/gguf_tokens.h"

namespace tessera::models {

// tokenizer.json and tokenizer_config.json.
StatusOr<FolderTexts> BpeOfGguf(const GgufFile& file);

// Of a tokenizer with this tokenizer.json; `where` begins messages.
StatusOr<GgufTokenizer> BpeForGguf(const data::Tokenizer& tokenizer,
                                   const std::string& tokenizer_json, const std::string& where,
                                   int64_t vocab_size);

// The byte tokenizer as BPE without merges.
StatusOr<GgufTokenizer> ByteTokenizerForGguf(const data::Tokenizer& tokenizer,
                                             const std::string& where, int64_t vocab_size);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_BPE_H_
