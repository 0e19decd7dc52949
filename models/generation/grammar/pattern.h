// SPDX-License-Identifier: Apache-2.0
// Regular expressions as JSON Schema's `pattern` has them (ECMA-262), as automata over code points.
//
//   TESSERA_ASSIGN_OR_RETURN(const Dfa dfa, PatternAutomaton("^[a-z]+-\\d{2,4}$"));
//
// As JSON Schema says, a pattern need not match all of a text: "b" accepts every text with a b.
// Supported are characters and their escapes, '.', classes, \d \w \s \D \W \S, groups,
// alternatives, the quantifiers * + ? {m,n} (lazy ones accept the same texts), ^ and $. An error
// names what is not: assertions other than those two, references back, \p.
#ifndef TESSERA_MODELS_GENERATION_GRAMMAR_PATTERN_H_
#define TESSERA_MODELS_GENERATION_GRAMMAR_PATTERN_H_

#include <string_view>

#include "base/status.h"
#include "models/generation/grammar/automaton.h"

namespace tessera::models {

// InvalidArgument: a pattern that is malformed, not supported, or needs too many states.
StatusOr<Dfa> PatternAutomaton(std::string_view pattern);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_GRAMMAR_PATTERN_H_
