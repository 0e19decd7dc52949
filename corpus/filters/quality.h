// SPDX-License-Identifier: Apache-2.0
// Filters of quality by their published rules. Each is a list of rules with names of their own, of
// which the first that does not hold drops the text.
//
//   const Verdict verdict = GopherQuality(TextFacts(text));    // {"gopher_stop_words", "1"}
//
// The thresholds are those of the papers and of C4's code: Rae et al. 2021 (arXiv:2112.11446, table
// A1 and appendix A.1.1), Raffel et al. 2020 (arXiv:1910.10683, section 2.2). They are for English.
#ifndef TESSERA_CORPUS_FILTERS_QUALITY_H_
#define TESSERA_CORPUS_FILTERS_QUALITY_H_

#include <set>
#include <string>
#include <string_view>

#include "corpus/engine/document_pass.h"
#include "corpus/filters/text_facts.h"

namespace tessera::corpus {

// gopher_words: 50 to 100,000 words. gopher_word_length: 3 to 10 characters on average.
// gopher_symbols: "#" and "..." at most 0.1 a word. gopher_bullets: at most 90 % of lines begin
// with one. gopher_ellipsis: at most 30 % of lines end with one. gopher_letters: 80 % of words have
// a letter. gopher_stop_words: two different ones of the, be, to, of, and, that, have, with.
Verdict GopherQuality(const TextFacts& facts);

// gopher_duplicate_lines, _line_characters, _paragraphs, _paragraph_characters: repeated ones are
// at most 30, 20, 30, 20 %. gopher_top_2_gram to _4_gram: the commonest takes at most 20, 18, 16 %
// of the characters. gopher_duplicate_5_gram to _10_gram: repeated ones take at most 15 to 10 %.
Verdict GopherRepetition(const TextFacts& facts);

// Takes out of *text the lines that C4 does not have, counting each by its rule:
// c4_line_long_word: one of more than 1,000 characters. c4_line_end: it ends with none of . ! ? "
// (and ”, which C4's code does not know), or with "...". c4_line_words: fewer than 5.
// c4_line_javascript, c4_line_policy: it has such a word. Lines that stay lose "[12]", "[edit]" and
// "[citation needed]". A line that ends well may drop the text: c4_lorem_ipsum, c4_curly_bracket.
// c4_sentences: fewer than 3 are left.
Verdict C4(std::string* text, Counts* counts);

// A word or a phrase of the list, in lower case, is in the text, with no letter, digit or
// underscore beside it.
Verdict BadWords(const TextFacts& facts, const std::set<std::string, std::less<>>& words);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_FILTERS_QUALITY_H_
