// SPDX-License-Identifier: Apache-2.0
// UTF-8 as text files hold it: decoding that survives any bytes, and finding the first wrong one.
//
//   size_t bad = FindInvalidUtf8(text);
//   if (bad != kNoInvalidUtf8) return InvalidArgument(path, ": invalid UTF-8 at byte ", bad);
//
// Well-formed is what table 3-7 of the Unicode standard says: no surrogates, no overlong forms,
// nothing above U+10FFFF.
#ifndef TESSERA_BASE_UTF8_H_
#define TESSERA_BASE_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

inline constexpr size_t kNoInvalidUtf8 = static_cast<size_t>(-1);
inline constexpr char32_t kReplacementCharacter = 0xFFFD;

// One step through a text. A byte that begins no well-formed character is taken alone: `valid` is
// false, `length` 1 and `code_point` the byte.
struct Utf8Char {
  char32_t code_point;
  int length;
  bool valid;
};

// The character at text[i]; i < text.size().
Utf8Char DecodeUtf8(std::string_view text, size_t i);

// The length that the first byte of the character at text[i] announces, 1 where it announces none,
// cut at the text's end; what follows it is not looked at. i < text.size().
inline size_t AnnouncedUtf8Length(std::string_view text, size_t i) {
  static constexpr char kLengths[] = "\1\1\1\1\1\1\1\1\1\1\1\1\2\2\3\4";
  const auto length = static_cast<size_t>(kLengths[static_cast<uint8_t>(text[i]) >> 4]);
  return length < text.size() - i ? length : text.size() - i;
}

// Offset of the first byte that is no part of a well-formed character, or kNoInvalidUtf8.
size_t FindInvalidUtf8(std::string_view text);

// How many bytes at the end (0 to 3) are the beginning of a character that later bytes could
// complete.
size_t IncompleteUtf8Suffix(std::string_view text);

// Appends the UTF-8 form of a code point (a Unicode scalar value).
void AppendUtf8(char32_t code_point, std::string* out);

// A copy for a terminal or a JSON string: U+FFFD replaces each longest beginning of a character
// that its text cuts, and each other byte that is no part of a well-formed one (Unicode standard,
// chapter 3.9; bytes.decode(errors="replace") of Python, String::from_utf8_lossy of Rust).
std::string ReplaceInvalidUtf8(std::string_view text);

// The same, but with U+FFFD for each byte of a character that is cut: SentencePiece's way.
std::string ReplaceInvalidBytes(std::string_view text);

}  // namespace tessera

#endif  // TESSERA_BASE_UTF8_H_
