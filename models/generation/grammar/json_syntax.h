// SPDX-License-Identifier: Apache-2.0
// What every JSON text is made of, as parts of automata: blanks between elements, quoted texts, and
// values as they are.
//
//   grammar.Define(indent, *Determinise(JsonIndent()));
//   const int begin = nfa.Text(nfa.start(), "[");
//   const int item = nfa.Add();
//   AddJsonSpace(indent, &nfa, begin, item);
//   const int behind = AddJsonConstant({{"a", 1}}, indent, &nfa, item);
#ifndef TESSERA_MODELS_GENERATION_GRAMMAR_JSON_SYNTAX_H_
#define TESSERA_MODELS_GENERATION_GRAMMAR_JSON_SYNTAX_H_

#include <string>

#include "models/generation/grammar/automaton.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

// The symbol that calls a rule of a grammar.
inline Symbol CallOf(int rule) { return kFirstCall + static_cast<Symbol>(rule); }

// A new line and up to 40 blanks or 10 tabs.
Nfa JsonIndent();

// What may be between a bracket or a comma and the next element: nothing, a blank, or what the rule
// `indent` says.
void AddJsonSpace(int indent, Nfa* nfa, int from, int to);

// A scalar as JSON, integers beyond 64 bits (base/json_ordered.h) with all their digits.
std::string JsonScalar(const nlohmann::ordered_json& value);

// Each returns the state behind.
int AddJsonQuoted(const std::string& text, Nfa* nfa, int from);
int AddJsonColon(Nfa* nfa, int from);
// Of a value as it is; < 0: it is nested too deeply.
int AddJsonConstant(const nlohmann::ordered_json& value, int indent, Nfa* nfa, int from);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_GRAMMAR_JSON_SYNTAX_H_
