// SPDX-License-Identifier: Apache-2.0
// The few functions of Python's strings that tokenizers are written with. White space is Python's:
// Unicode's, with the separators U+001C to U+001F.
//
//   StripLeft(" \u3000a ");      // "a "
//   CollapsedSpaces(" a \t b");  // "a b"
#ifndef TESSERA_BASE_PYTHON_TEXT_H_
#define TESSERA_BASE_PYTHON_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

// str.isspace of one character.
bool IsPythonSpace(char32_t c);

// str.lstrip, str.rstrip and str.strip; the results lie in `text`.
std::string_view StripLeft(std::string_view text);
std::string_view StripRight(std::string_view text);
std::string_view Strip(std::string_view text);

// " ".join(text.split()).
std::string CollapsedSpaces(std::string_view text);

// str.replace; `from` is not empty.
std::string ReplacedAll(std::string_view text, std::string_view from, std::string_view to);

// Where the last character of text[0, end) begins; 0 < end <= text.size().
size_t LastCharacter(std::string_view text, size_t end);

// transformers' clean_up_tokenization: no blank before punctuation and English contractions.
void CleanUpSpaces(std::string* text);

}  // namespace tessera

#endif  // TESSERA_BASE_PYTHON_TEXT_H_
