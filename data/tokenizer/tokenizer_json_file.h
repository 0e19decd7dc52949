// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json whose vocabulary and merges, which are nearly all of it, are read without a
// tree.
//
//   TESSERA_ASSIGN_OR_RETURN(TokenizerJsonFile file, ReadTokenizerJsonFile(path));
//   if (file.large) ... file.large->vocab ...; else ... file.root["model"]["vocab"] ...
#ifndef TESSERA_DATA_TOKENIZER_TOKENIZER_JSON_FILE_H_
#define TESSERA_DATA_TOKENIZER_TOKENIZER_JSON_FILE_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/vocab_index.h"

namespace tessera::data {

// Which two pieces become one, in the order in which they do.
using BpeRules = std::vector<std::pair<std::string, std::string>>;

struct TokenizerJsonFile {
  // Of a byte-pair model: neither is empty, and merges are two pieces without blanks.
  struct LargeParts {
    VocabEntries vocab;
    BpeRules merges;
    std::string place;  // begins messages about them
  };
  nlohmann::json root;  // with empty ones in place of the large parts, if those are there
  std::optional<LargeParts> large;
  std::string text;  // all of it
};

// Where the large parts are not plain (or not valid), all is in `root`. Failures as those of
// ReadJsonFile.
StatusOr<TokenizerJsonFile> ReadTokenizerJsonFile(const std::string& path);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_TOKENIZER_JSON_FILE_H_
