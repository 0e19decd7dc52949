// SPDX-License-Identifier: Apache-2.0
// One or two texts as the row that an encoder was trained on: special tokens around them, token
// types, and a length that is not exceeded.
//
//   TESSERA_ASSIGN_OR_RETURN(EncodedRow row, EncodePair(*tokenizer, "A sentence.", "Another.",
//                                                       {.max_length = 128}));
//   // BertTokenizer: [CLS] A sentence. [SEP] Another. [SEP], types 0 0 0 1 1
//
// What stands where is the tokenizer's row template, which its loader makes: as the class that its
// files name does, or as the post_processor of its tokenizer.json says.
//
// What is too long is cut at its end (PairOptions::cut_begin: at its begin), the longer of two
// texts first, as Hugging Face's fast tokenizers do (`longest_first`). An empty second text is a
// text: it gets its [SEP].
#ifndef TESSERA_DATA_TOKENIZER_SEQUENCE_PAIR_H_
#define TESSERA_DATA_TOKENIZER_SEQUENCE_PAIR_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {

struct EncodedRow {
  std::vector<int32_t> ids;
  std::vector<int32_t> token_type_ids;
};

// How long a row may be.
struct PairOptions {
  int64_t max_length = 0;  // tokens, special ones included; 0: no limit
  bool cut_begin = false;  // what is too long loses its begin (`truncation_side`: left)
};

// InvalidArgument if the tokenizer has no such template, or max_length leaves no room
// for the special tokens.
StatusOr<EncodedRow> EncodePair(const Tokenizer& tokenizer, std::string_view first,
                                std::optional<std::string_view> second = std::nullopt,
                                const PairOptions& options = {});

// The same of token ids.
StatusOr<EncodedRow> BuildRow(const Tokenizer& tokenizer, std::vector<int32_t> first,
                              std::optional<std::vector<int32_t>> second = std::nullopt,
                              const PairOptions& options = {});

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_SEQUENCE_PAIR_H_
