// SPDX-License-Identifier: Apache-2.0
// The `pre_tokenizer` of a tokenizer.json: cuts normalised text into the words that the model sees.
//
//   TESSERA_ASSIGN_OR_RETURN(const auto splitter, PipelineSplitter::Parse(root["pre_tokenizer"]));
//   std::vector<std::string> words = splitter.Split("Hello world", /*at_begin=*/true);
//
// Types: ByteLevel, Metaspace, BertPreTokenizer, Whitespace, WhitespaceSplit, Split, Digits,
// Punctuation, Sequence. Another one is refused by name. The results are those of Hugging Face's
// tokenizers. Immutable; safe from several threads.
#ifndef TESSERA_DATA_TOKENIZER_PIPELINE_SPLITTER_H_
#define TESSERA_DATA_TOKENIZER_PIPELINE_SPLITTER_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/json_part.h"

namespace tessera::data {

class PipelineSplitter {
 public:
  // Of null: the text is one word.
  static StatusOr<PipelineSplitter> Parse(const JsonPart& part);

  // The words of `text`, valid UTF-8; `at_begin`: it begins the whole text that is encoded.
  std::vector<std::string> Split(std::string_view text, bool at_begin) const;

 private:
  struct Word {
    std::string text;
    bool at_begin;
  };
  using Step = std::function<void(const Word&, std::vector<Word>*)>;
  Status Add(const JsonPart& part);
  Status AddMetaspace(const JsonPart& part);
  Status AddSplit(const JsonPart& part);

  std::vector<Step> steps_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_PIPELINE_SPLITTER_H_
