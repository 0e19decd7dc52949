// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json as text, for the kinds that can be written as one.
//
//   TokenizerJson json{.added_tokens = added, .model = "{\"type\": \"WordPiece\", ...}"};
//   json.normalizer = R"({"type": "NFC"})";
//   WriteFileAtomically(path, json.Text());
#ifndef TESSERA_DATA_TOKENIZER_TOKENIZER_JSON_TEXT_H_
#define TESSERA_DATA_TOKENIZER_TOKENIZER_JSON_TEXT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {

struct TokenizerJson {
  std::vector<AddedToken> added_tokens;  // any order
  // JSON texts.
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string post_processor = "null";
  std::string decoder = "null";
  std::string model;

  std::string Text() const;
};

// The model of a tokenizer.json that merges pairs.
struct BpeJson {
  std::string unk_token = "null";  // JSON
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  std::string vocab;   // VocabJson
  std::string merges;  // the elements of a JSON array

  std::string Text() const;
};

// "true" or "false".
const char* JsonBool(bool value);

// {"piece": id, ...} in the order of the ids; of a piece that is there twice the last id.
std::string VocabJson(std::vector<std::pair<int32_t, std::string>> vocab);

// The TemplateProcessing of a tokenizer's rows; `name_of` gives the text of a special token.
std::string TemplateJson(const RowTemplate& single, const RowTemplate& pair,
                         const std::function<std::string(int32_t)>& name_of);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_TOKENIZER_JSON_TEXT_H_
