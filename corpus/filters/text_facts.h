// SPDX-License-Identifier: Apache-2.0
// What filters want to know of a text, found once.
#ifndef TESSERA_CORPUS_FILTERS_TEXT_FACTS_H_
#define TESSERA_CORPUS_FILTERS_TEXT_FACTS_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::corpus {

struct TextPiece {
  std::string_view text;
  int64_t characters = 0;
  uint64_t hash = 0;
};

// Words between white space. The pieces point into the text.
std::vector<TextPiece> WordsOf(std::string_view text);

// The pieces point into the text.
struct TextFacts {
  explicit TextFacts(std::string_view text);

  std::string_view text;
  int64_t characters = 0;
  std::vector<TextPiece> words;       // between white space
  std::vector<TextPiece> lines;       // that are not blank, without blanks at both ends
  std::vector<TextPiece> paragraphs;  // between blank lines
};

// Characters of UTF-8.
int64_t CountCharacters(std::string_view text);

// Tokens by GPT-2's splitting pattern, which its tokenizer has no fewer of; every ideograph and
// kana counts as one.
int64_t CountPieces(std::string_view text);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_FILTERS_TEXT_FACTS_H_
