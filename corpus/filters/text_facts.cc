// SPDX-License-Identifier: Apache-2.0
#include "corpus/filters/text_facts.h"

#include <algorithm>

#include "base/python_text.h"
#include "base/utf8.h"
#include "corpus/engine/hash.h"
#include "corpus/io/text_units.h"
#include "data/tokenizer/gpt2_split.h"

namespace tessera::corpus {
namespace {

TextPiece PieceOf(std::string_view text) {
  return {text, CountCharacters(text), HashBytes(text, 0)};
}

std::vector<TextPiece> PiecesOf(std::string_view text, TextUnit unit) {
  std::vector<TextPiece> pieces;
  for (const std::string_view piece : UnitsOf(text, unit)) {
    if (const std::string_view bare = Bare(piece); !bare.empty()) pieces.push_back(PieceOf(bare));
  }
  return pieces;
}

}  // namespace

std::vector<TextPiece> WordsOf(std::string_view text) {
  std::vector<TextPiece> words;
  size_t begin = 0;
  const auto end_word = [&](size_t end) {
    if (end > begin) words.push_back(PieceOf(text.substr(begin, end - begin)));
  };
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<uint8_t>(text[i]);
    size_t length = 1;
    bool space = byte == ' ' || (byte >= 9 && byte <= 13);
    if (byte >= 0xC2) {
      const Utf8Char c = DecodeUtf8(text, i);
      length = static_cast<size_t>(c.length);
      space = IsPythonSpace(c.code_point);
    }
    if (space) {
      end_word(i);
      begin = i + length;
    }
    i += length;
  }
  end_word(text.size());
  return words;
}

TextFacts::TextFacts(std::string_view text)
    : text(text),
      characters(CountCharacters(text)),
      words(WordsOf(text)),
      lines(PiecesOf(text, TextUnit::kLine)),
      paragraphs(PiecesOf(text, TextUnit::kParagraph)) {}

int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

int64_t CountPieces(std::string_view text) {
  int64_t count = 0;
  data::Gpt2Splitter splitter(text);
  for (std::string_view word; splitter.Next(&word);) {
    int64_t ideographs = 0;
    for (const char c : word) {
      const auto byte = static_cast<uint8_t>(c);
      // U+3000 to U+9FFF, and what lies beyond the first plane.
      ideographs += (byte >= 0xE3 && byte <= 0xE9) || byte >= 0xF0;
    }
    count += std::max<int64_t>(1, ideographs);
  }
  return count;
}

}  // namespace tessera::corpus
