// SPDX-License-Identifier: Apache-2.0
// Context-free languages over bytes, and how far a text of one has come.
//
//   ByteGrammar grammar;
//   const int list = grammar.AddRule();              // may be called before it is defined
//   grammar.Define(list, dfa_of_bytes_and_calls);    // the symbol kFirstCall + list calls it
//   TESSERA_RETURN_IF_ERROR(grammar.Finish(list));
//   GrammarState state(grammar);
//   state.Advance('[');                              // false: no text of the language begins so
//
// A rule is a deterministic automaton whose edges are bytes and calls of rules. A state of a text
// is a set of pairs of a state of a rule and a stack of the states that calls return to. The bytes
// decide between the pairs. Nothing depends on how a text is cut into tokens.
#ifndef TESSERA_MODELS_GENERATION_GRAMMAR_BYTE_GRAMMAR_H_
#define TESSERA_MODELS_GENERATION_GRAMMAR_BYTE_GRAMMAR_H_

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/generation/grammar/automaton.h"

namespace tessera::models {

// Calls within calls; deeper values are not written.
inline constexpr int kDeepestCall = 512;

class ByteGrammar {
 public:
  using StateId = int32_t;
  struct Call {
    int rule;
    StateId to;
  };

  int AddRule();
  // Its text is not empty. Bytes are symbols up to 255.
  void Define(int rule, const Dfa& dfa);
  // A JSON string of so many characters; no `most`: any number from `least` on. Lengths are
  // counted, not spelled out in states, so that they may be large.
  void DefineText(int rule, int64_t least, std::optional<int64_t> most);
  // InvalidArgument: the rule accepts nothing, or a rule calls itself before its first byte.
  Status Finish(int root);

  StateId start() const { return rules_[static_cast<size_t>(root_)].start; }
  StateId rule_start(int rule) const { return rules_[static_cast<size_t>(rule)].start; }
  // Which bytes a rule's texts begin with.
  const std::bitset<256>& first(int rule) const { return rules_[static_cast<size_t>(rule)].first; }

  // The state behind a byte within the same rule; < 0: none.
  StateId Next(StateId state, uint8_t byte) const;
  std::span<const Call> calls(StateId state) const;
  // Whether a rule may end here.
  bool accepts(StateId state) const { return plain(state) && states_[Index(state)].accepts; }
  // Whether something may follow within the rule.
  bool goes_on(StateId state) const;
  // A state with the same texts of up to `length` bytes as this one has, as long as the rule does
  // not end: those far from the bounds of a length are alike.
  StateId Alike(StateId state, int64_t length) const;

 private:
  friend class ShortestEndings;

  struct State {
    std::vector<SymbolEdge> edges;  // of bytes
    std::vector<Call> calls;
    bool accepts = false;
  };
  struct Rule {
    StateId start = -1;
    std::bitset<256> first;
  };
  // Strings: in state base + i * (states of a character) + k are i characters and a part of the
  // next.
  struct Texts {
    StateId base;
    int64_t least;
    int64_t most;  // < 0: any number
    int64_t blocks() const { return (most < 0 ? least : most) + 1; }
  };
  struct Place {
    const Texts* texts;
    int64_t written;
    int32_t part;
  };

  static size_t Index(StateId state) { return static_cast<size_t>(state); }
  static bool plain(StateId state) { return state < kFirstText; }
  Place PlaceOf(StateId state) const;
  bool CallsItself() const;

  static constexpr StateId kFirstText = 1 << 28;

  std::vector<State> states_;
  std::vector<Rule> rules_;
  std::vector<Texts> texts_;
  StateId next_text_ = kFirstText;
  StateId end_of_text_ = -1;
  int root_ = 0;
};

// Texts that complete what is begun, as cheap as possible by the costs of their bytes (D. Knuth, "A
// generalization of Dijkstra's algorithm", Information Processing Letters 6(1), 1977).
class ShortestEndings {
 public:
  static constexpr int64_t kNever = INT64_MAX / 4;

  ShortestEndings(const ByteGrammar& grammar, const std::array<int64_t, 256>& costs);

  // What a state's rule costs to its end; at least kNever: it never ends.
  int64_t Cost(ByteGrammar::StateId state) const;
  // Appends the bytes to its rule's end. The text behind a prefix of it is what the state there
  // gives. It stops beyond `most` bytes and returns false.
  bool Append(ByteGrammar::StateId state, size_t most, std::string* text) const;

 private:
  struct Choice {
    int64_t cost = kNever;
    int call = -1;  // >= 0: one of the state's calls
    int byte = -1;  // >= 0; neither: the rule ends
  };
  void AddCharacterCosts(const std::array<int64_t, 256>& costs);
  void AddStateCosts(const std::array<int64_t, 256>& costs);

  const ByteGrammar& grammar_;
  std::vector<Choice> plain_;      // by state
  std::vector<Choice> character_;  // by part; of the first one a whole character
  int64_t quote_cost_ = 1;
};

// The states that calls return to, shared by all texts that have come through them.
struct GrammarStack {
  ByteGrammar::StateId to;
  std::shared_ptr<const GrammarStack> rest;
  int depth;
};

struct GrammarPoint {
  ByteGrammar::StateId state;
  std::shared_ptr<const GrammarStack> stack;

  bool operator==(const GrammarPoint& other) const;
};

using GrammarPoints = std::vector<GrammarPoint>;

// Appends where a byte leads from one point.
void StepInto(const ByteGrammar& grammar, const GrammarPoint& point, uint8_t byte,
              GrammarPoints* next);
// Whether the text may end at a point.
bool MayEnd(const ByteGrammar& grammar, const GrammarPoint& point);

// Copying one is cheap. The grammar must outlive it.
class GrammarState {
 public:
  explicit GrammarState(const ByteGrammar& grammar)
      : grammar_(&grammar), points_({{grammar.start(), nullptr}}) {}

  // Takes a byte; false, and nothing changes, where none may follow.
  bool Advance(uint8_t byte);
  bool Advance(std::string_view bytes);
  bool Allowed(uint8_t byte) const { return GrammarState(*this).Advance(byte); }
  // Whether the text is complete, and whether no byte may follow.
  bool complete() const;
  bool finished() const;

  const GrammarPoints& points() const { return points_; }

 private:
  const ByteGrammar* grammar_;
  GrammarPoints points_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_GRAMMAR_BYTE_GRAMMAR_H_
