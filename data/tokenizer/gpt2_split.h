// SPDX-License-Identifier: Apache-2.0
// Splits text into the words that byte-level BPE works on, as GPT-2 does.
//
//   Gpt2Splitter splitter(text);
//   std::string_view word;
//   while (splitter.Next(&word)) ...   // "I've  seen" -> "I" "'ve" " " " seen"
//
// The words are the successive matches of GPT-2's pattern
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// (openai/gpt-2, src/encoder.py), which together cover the whole text. Bytes that are not UTF-8
// count as characters of no class, so they come out in words too and nothing is lost.
#ifndef TESSERA_DATA_TOKENIZER_GPT2_SPLIT_H_
#define TESSERA_DATA_TOKENIZER_GPT2_SPLIT_H_

#include <cstddef>
#include <string_view>

#include "data/tokenizer/class_reader.h"

namespace tessera::data {

class Gpt2Splitter {
 public:
  // `text` must outlive the splitter and its words.
  explicit Gpt2Splitter(std::string_view text) : text_(text), reader_(text) {}

  // Takes the next word; false at the end.
  bool Next(std::string_view* word);

 private:
  size_t WordEnd() const;
  size_t SpaceEnd() const;

  std::string_view text_;
  ClassReader reader_;
  size_t position_ = 0;
};

// Whether the words of text[0, i) and text[i, ..) are known to be those of the whole, so that the
// parts may be split apart from each other; 0 < i < text.size(). True where white space of ASCII
// follows a character that is none: no alternative of the pattern matches across such a place.
bool Gpt2MayCutAt(std::string_view text, size_t i);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_GPT2_SPLIT_H_
