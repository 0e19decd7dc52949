// SPDX-License-Identifier: Apache-2.0
// A pattern of a tokenizer.json: {"String": text} or {"Regex": expression}.
//
//   TESSERA_ASSIGN_OR_RETURN(const auto pattern, TextPattern::Parse(part["pattern"]));
//   pattern.FindAll("a b", [](size_t begin, size_t end) { ... });
//
// Matches are those of Hugging Face's tokenizers (core/regex.h says which). Immutable; safe from
// several threads.
#ifndef TESSERA_DATA_TOKENIZER_TEXT_PATTERN_H_
#define TESSERA_DATA_TOKENIZER_TEXT_PATTERN_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "data/tokenizer/json_part.h"

namespace tessera::data {

class TextPattern {
 public:
  static StatusOr<TextPattern> Parse(const JsonPart& part);
  // `text` itself, which is not empty.
  static TextPattern Literal(std::string text);

  // Calls f for the successive matches in `text`, valid UTF-8. Matches of expressions may be empty.
  void FindAll(std::string_view text, const std::function<void(size_t, size_t)>& f) const {
    find_(text, f);
  }

 private:
  using Find = std::function<void(std::string_view, const std::function<void(size_t, size_t)>&)>;
  explicit TextPattern(Find find) : find_(std::move(find)) {}

  Find find_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_TEXT_PATTERN_H_
