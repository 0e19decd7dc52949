// One or two texts as the row that an encoder was trained on: special tokens around them, token
// types, and a length that is not exceeded.
//
//   TESSERA_ASSIGN_OR_RETURN(EncodedRow row, EncodePair(*tokenizer, "A sentence.", "Another.",
//                                                       {.max_length = 128}));
//   // BERT:    [CLS] a [SEP] b [SEP]        types 0 0 0 1 1
//   // RoBERTa: <s> a </s></s> b </s>        types 0
//   // T5:      a </s> b </s>                types 0
//   // LLaMA:   <s> a <s> b                  types 0 0 1 1 (with </s> where the folder asks for it)
//   // GLM:     [CLS] a <|endoftext|>        types 0; one text only
//   // ChatGLM: a [gMASK] <sop> b <eop>      types 0
//   // of tokenizer.json: as its post_processor says
//
// What is too long is cut at its end, the longer of two texts first, as Hugging Face's fast
// tokenizers do (`longest_first`). An empty second text is a text: it gets its [SEP].
#ifndef TESSERA_DATA_TOKENIZER_SEQUENCE_PAIR_H_
#define TESSERA_DATA_TOKENIZER_SEQUENCE_PAIR_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {

struct EncodedRow {
  std::vector<int32_t> ids;
  std::vector<int32_t> token_type_ids;
};

struct PairOptions {
  int64_t max_length = 0;  // tokens, special ones included; 0: no limit
};

// InvalidArgument if the tokenizer knows no such template (a GPT's), or max_length leaves no room
// for the special tokens.
absl::StatusOr<EncodedRow> EncodePair(const Tokenizer& tokenizer, std::string_view first,
                                      std::optional<std::string_view> second = std::nullopt,
                                      const PairOptions& options = {});

// The same of token ids.
absl::StatusOr<EncodedRow> BuildRow(const Tokenizer& tokenizer, std::vector<int32_t> first,
                                    std::optional<std::vector<int32_t>> second = std::nullopt,
                                    const PairOptions& options = {});

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_SEQUENCE_PAIR_H_
