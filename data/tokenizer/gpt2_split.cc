// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/gpt2_split.h"

#include <cstdint>

#include "base/utf8.h"

namespace tessera::data {
namespace {

// Length of 's 't 're 've 'm 'll 'd at the front of `text`, which begins with an apostrophe; 0 if
// it is none of them.
size_t ContractionLength(std::string_view text) {
  if (text.size() < 2) return 0;
  switch (text[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return text.size() > 2 && text[2] == 'e' ? 3 : 0;
    case 'l':
      return text.size() > 2 && text[2] == 'l' ? 3 : 0;
    default:
      return 0;
  }
}

}  // namespace

// \s+(?!\S)|\s+ : all of the white space at the end of the text; else all but its last character,
// which belongs to what follows, unless it is the only one.
size_t Gpt2Splitter::SpaceEnd() const {
  size_t last = position_;
  size_t i = position_;
  while (i < text_.size()) {
    const ClassReader::Step step = reader_.At(i);
    if (step.char_class != CharClass::kSpace) return last > position_ ? last : i;
    last = i;
    i += step.length;
  }
  return i;
}

size_t Gpt2Splitter::WordEnd() const {
  const char first = text_[position_];
  if (first == '\'') {
    const size_t length = ContractionLength(text_.substr(position_));
    if (length != 0) return position_ + length;
  }
  const size_t body = first == ' ' ? position_ + 1 : position_;
  if (body == text_.size()) return body;
  const ClassReader::Step step = reader_.At(body);
  if (step.char_class == CharClass::kSpace) return SpaceEnd();
  return reader_.RunEnd(body + step.length, step.char_class);
}

bool Gpt2Splitter::Next(std::string_view* word) {
  if (position_ == text_.size()) return false;
  const size_t end = WordEnd();
  *word = text_.substr(position_, end - position_);
  position_ = end;
  return true;
}

bool Gpt2MayCutAt(std::string_view text, size_t i) {
  if (!ClassReader::IsAsciiSpace(text[i])) return false;
  size_t begin = i - 1;
  while (begin > 0 && i - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  // A byte that is no UTF-8 is no white space either; taking it for some only forgoes the place.
  return UnicodeClasses::Get().Of(DecodeUtf8(text, begin).code_point) != CharClass::kSpace;
}

}  // namespace tessera::data
