// SPDX-License-Identifier: Apache-2.0
// A text as lines or paragraphs.
#ifndef TESSERA_CORPUS_IO_TEXT_UNITS_H_
#define TESSERA_CORPUS_IO_TEXT_UNITS_H_

#include <string_view>
#include <vector>

namespace tessera::corpus {

enum class TextUnit { kDocument, kParagraph, kLine };

// Pieces that together are the text, each with the line feeds behind it. Paragraphs end at blank
// lines.
std::vector<std::string_view> UnitsOf(std::string_view text, TextUnit unit);

// Without blanks and line feeds at both ends; what is left of two units that are the same is the
// same.
std::string_view Bare(std::string_view unit);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_IO_TEXT_UNITS_H_
