// SPDX-License-Identifier: Apache-2.0
// Reads the classes of characters off a text, for splitters that stand for a regular expression.
//
//   const ClassReader reader(text);
//   reader.RunEnd(0, CharClass::kLetter);   // where the first word ends
//
// Bytes that are not UTF-8 count as characters of no class.
#ifndef TESSERA_DATA_TOKENIZER_CLASS_READER_H_
#define TESSERA_DATA_TOKENIZER_CLASS_READER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/unicode_classes.h"
#include "base/utf8.h"

namespace tessera::data {

class ClassReader {
 public:
  struct Step {
    CharClass char_class;
    int length;
  };

  // `text` must outlive the reader.
  explicit ClassReader(std::string_view text) : text_(text), classes_(UnicodeClasses::Get()) {}

  std::string_view text() const { return text_; }

  // The character at text[i]; i < text.size().
  Step At(size_t i) const {
    const uint8_t ascii = kAsciiClasses[static_cast<uint8_t>(text_[i])];
    if (ascii != kNotAscii) return {static_cast<CharClass>(ascii), 1};
    const Utf8Char c = DecodeUtf8(text_, i);
    return {c.valid ? classes_.Of(c.code_point) : CharClass::kOther, c.length};
  }

  // Where the characters of a class that begin at text[i] end.
  size_t RunEnd(size_t i, CharClass char_class) const {
    while (i < text_.size()) {
      const Step step = At(i);
      if (step.char_class != char_class) break;
      i += static_cast<size_t>(step.length);
    }
    return i;
  }

  // Whether a byte is white space of ASCII.
  static bool IsAsciiSpace(char byte) {
    return kAsciiClasses[static_cast<uint8_t>(byte)] == static_cast<uint8_t>(CharClass::kSpace);
  }

 private:
  static constexpr uint8_t kNotAscii = 0xFF;
  static constexpr std::array<uint8_t, 256> AsciiClasses() {
    std::array<uint8_t, 256> classes{};
    for (int c = 0; c < 256; ++c) {
      if (c >= 0x80) {
        classes[c] = kNotAscii;
      } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        classes[c] = static_cast<uint8_t>(CharClass::kLetter);
      } else if (c >= '0' && c <= '9') {
        classes[c] = static_cast<uint8_t>(CharClass::kNumber);
      } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
        classes[c] = static_cast<uint8_t>(CharClass::kSpace);
      }
    }
    return classes;
  }
  static const std::array<uint8_t, 256> kAsciiClasses;

  std::string_view text_;
  const UnicodeClasses& classes_;
};

inline constexpr std::array<uint8_t, 256> ClassReader::kAsciiClasses = ClassReader::AsciiClasses();

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_CLASS_READER_H_
