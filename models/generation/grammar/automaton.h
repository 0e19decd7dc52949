// SPDX-License-Identifier: Apache-2.0
// Finite automata over symbols: bytes, code points, and calls of rules (byte_grammar.h).
//
//   Nfa nfa;
//   const int end = nfa.Add();
//   nfa.Edge(nfa.start(), 'a', 'z', end);
//   nfa.Accept(end);
//   const std::optional<Dfa> dfa = Determinise(nfa, 1000);
//
// The subset construction is M. Rabin and D. Scott's ("Finite automata and their decision
// problems", IBM Journal 3(2), 1959).
#ifndef TESSERA_MODELS_GENERATION_GRAMMAR_AUTOMATON_H_
#define TESSERA_MODELS_GENERATION_GRAMMAR_AUTOMATON_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tessera::models {

using Symbol = uint32_t;
inline constexpr Symbol kLastCodePoint = 0x10FFFF;
// Symbols from here on are calls of rules.
inline constexpr Symbol kFirstCall = kLastCodePoint + 1;
// An automaton with more states is refused.
inline constexpr size_t kMostStates = 200'000;

struct SymbolEdge {
  Symbol first;
  Symbol last;
  int to;
};

class Nfa {
 public:
  Nfa() { Add(); }
  int Add();
  int start() const { return 0; }
  void Edge(int from, Symbol first, Symbol last, int to);
  void Edge(int from, Symbol symbol, int to) { Edge(from, symbol, symbol, to); }
  void Empty(int from, int to);
  // Passed only before the first symbol, or behind the last one.
  void AtStart(int from, int to);
  void AtEnd(int from, int to);
  void Accept(int state);
  // The state behind `bytes`.
  int Text(int from, std::string_view bytes);

  struct State {
    std::vector<SymbolEdge> edges;
    std::vector<int> empty;
    std::vector<int> at_start;
    std::vector<int> at_end;
    bool accepts = false;
  };
  const std::vector<State>& states() const { return states_; }

 private:
  State& at(int state) { return states_[static_cast<size_t>(state)]; }
  std::vector<State> states_;
};

// Deterministic; from every state but perhaps the start an accepting one can be reached.
struct Dfa {
  struct State {
    std::vector<SymbolEdge> edges;  // sorted and disjoint
    bool accepts = false;
    int Next(Symbol symbol) const;  // < 0: none
  };
  std::vector<State> states;  // the first one is the start

  bool accepts_nothing() const { return states[0].edges.empty() && !states[0].accepts; }
  bool Accepts(const std::vector<Symbol>& symbols) const;
};

// nullopt: more than `most` states, or states of too many parts.
std::optional<Dfa> Determinise(const Nfa& nfa, size_t most = kMostStates);

// What both accept, or what only the first does.
enum class Pairing { kBoth, kFirstOnly };
std::optional<Dfa> Pair(const Dfa& a, const Dfa& b, Pairing pairing, size_t most = kMostStates);

// The same language as edges of a larger automaton: paths from `from` to `to`.
void Embed(const Dfa& dfa, Nfa* nfa, int from, int to);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_GRAMMAR_AUTOMATON_H_
