// SPDX-License-Identifier: Apache-2.0
// The `normalizer` of a tokenizer.json: what is done with text before it is split.
//
//   TESSERA_ASSIGN_OR_RETURN(const auto normalizer, PipelineNormalizer::Parse(root["normalizer"]));
//   normalizer.Normalize("Ｅlan");
//
// Types: NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend, Nmt, ByteLevel,
// BertNormalizer, Precompiled, Sequence. Another one is refused by name. The results are those of
// Hugging Face's tokenizers. Immutable; safe from several threads.
#ifndef TESSERA_DATA_TOKENIZER_PIPELINE_NORMALIZER_H_
#define TESSERA_DATA_TOKENIZER_PIPELINE_NORMALIZER_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/json_part.h"
#include "data/tokenizer/text_pattern.h"

namespace tessera::data {

class PipelineNormalizer {
 public:
  // Of null: a normalizer that changes nothing.
  static StatusOr<PipelineNormalizer> Parse(const JsonPart& part);

  // `text` is valid UTF-8. *keeps_begin becomes false where the first characters were replaced or
  // removed, so that the result does not count as the beginning of the text (Metaspace's
  // prepend_scheme "first").
  std::string Normalize(std::string_view text, bool* keeps_begin = nullptr) const;
  bool changes_nothing() const { return steps_.empty(); }

 private:
  using Step = std::function<std::string(std::string_view, bool* keeps_begin)>;
  Status Add(const JsonPart& part);

  std::vector<Step> steps_;
};

// `text` (valid UTF-8) with `content` for every match.
std::string ReplacedMatches(const TextPattern& pattern, std::string_view text,
                            std::string_view content);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_PIPELINE_NORMALIZER_H_
