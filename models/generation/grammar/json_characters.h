// SPDX-License-Identifier: Apache-2.0
// Characters as JSON strings hold them.
//
//   Nfa nfa;
//   AddJsonCharacters(0x20, kLastCodePoint, &nfa, from, to);
//
// A character is its UTF-8, or a short escape (\n, \", \/) where it has one. Control characters and
// those beyond ASCII may be written as \uXXXX, the latter's pairs of surrogates included. Printable
// ASCII characters may not.
#ifndef TESSERA_MODELS_GENERATION_GRAMMAR_JSON_CHARACTERS_H_
#define TESSERA_MODELS_GENERATION_GRAMMAR_JSON_CHARACTERS_H_

#include <optional>
#include <string_view>
#include <vector>

#include "models/generation/grammar/automaton.h"

namespace tessera::models {

// Edges from `from` to `to` for each code point of first to last that is no surrogate.
void AddJsonCharacters(Symbol first, Symbol last, Nfa* nfa, int from, int to);

// The code points of valid UTF-8.
std::vector<Symbol> CodePoints(std::string_view text);

// A text's characters, one after the other; the state behind them.
int AddJsonText(std::string_view text, Nfa* nfa, int from);

// A string in quotes whose characters an automaton over code points accepts.
std::optional<Dfa> QuotedJson(const Dfa& characters);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_GRAMMAR_JSON_CHARACTERS_H_
