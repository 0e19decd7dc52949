// SPDX-License-Identifier: Apache-2.0
// The classes of transformers whose tokenizers are more than a tokenizer.json says: special tokens
// have names by default, tokenizer_config.json has switches, and older files belong to them.
//
//   TokenizerClass tokenizer_class = ClassOf(JsonPart(root, path));
//   TESSERA_RETURN_IF_ERROR(TakeConfig(config, config_path, /*whole=*/true, &tokenizer_class,
//                                      &root));
#ifndef TESSERA_DATA_TOKENIZER_TOKENIZER_CLASS_H_
#define TESSERA_DATA_TOKENIZER_TOKENIZER_CLASS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"
#include "data/tokenizer/json_part.h"

namespace tessera::data {

enum class TokenizerClass : uint8_t {
  kGeneral,  // all that is to be known is in the tokenizer.json
  kGpt2,     // byte-level BPE alone
  kRoberta,  // GPT-2's, with <s> and </s> around texts
  kBert,     // BERT's normalizer, splitter and WordPiece
};

// The class that a tokenizer.json describes, part by part.
TokenizerClass ClassOf(const JsonPart& root);

// transformers' names of BERT's class, and of others that are the same.
bool IsBertClass(std::string_view name);

// The switches of a tokenizer_config.json, which count where *root, a tokenizer.json of the class,
// says otherwise. GPT-2's may turn out to be RoBERTa's. `whole`: *root is a file; else it was made
// of older files, and the configuration says what those are. InvalidArgument with the key of what
// is not supported.
Status TakeConfig(const nlohmann::json& config, const std::string& path, bool whole,
                  TokenizerClass* tokenizer_class, nlohmann::json* root);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_TOKENIZER_CLASS_H_
