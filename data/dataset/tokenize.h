// SPDX-License-Identifier: Apache-2.0
// From text files to an indexed dataset on the disk, once.
//
//   TESSERA_ASSIGN_OR_RETURN(auto tokenizer, MakeTokenizer("char", {"input.txt"}, {}));
//   TESSERA_ASSIGN_OR_RETURN(TokenizeResult done, TokenizeToIndexedDataset(
//       *tokenizer, {"input.txt"}, "out/data/train", {}));
//   TESSERA_ASSIGN_OR_RETURN(auto data, IndexedDataset::Open("out/data/train"));
//
// Beside <prefix>.bin and <prefix>.idx stands <prefix>.json: what they were made from (paths, sizes
// and times of the inputs, the tokenizer's fingerprint, the options). While that holds, they are
// used again. Processes that start together on one machine wait for the first one
// (<prefix>.lock) and then use its files.
#ifndef TESSERA_DATA_DATASET_TOKENIZE_H_
#define TESSERA_DATA_DATASET_TOKENIZE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/dataset/text_input.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {

// As LoadTokenizer, and "char" too: a vocabulary of the characters in `inputs`.
StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(const std::string& spec,
                                                   const std::vector<std::string>& inputs,
                                                   const TextInputOptions& options);

// How text becomes a token file.
struct TokenizeOptions {
  TextInputOptions input = {};
  bool prepend_begin = true;  // Tokenizer::text_begin() before every document
  // After every document the tokenizer's end of text, or its separator (BERT's [SEP]), if it has
  // one.
  bool append_eos = true;
  bool parse_special = true;  // as EncodeOptions::parse_special
  bool reuse = true;          // false: tokenise even if the files on the disk are up to date
};

struct TokenizeResult {
  int64_t num_documents = 0;
  int64_t num_tokens = 0;
  bool reused = false;
};

// Each document becomes one sequence of one document. Documents are encoded in parallel; the files
// do not depend on the number of threads. InvalidArgument when there is no text at all, and when
// `prefix` lies in a folder of `inputs`, all of whose files are read.
StatusOr<TokenizeResult> TokenizeToIndexedDataset(const Tokenizer& tokenizer,
                                                  const std::vector<std::string>& inputs,
                                                  const std::string& prefix,
                                                  const TokenizeOptions& options);

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_TOKENIZE_H_
