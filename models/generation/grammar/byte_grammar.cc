// SPDX-License-Identifier: Apache-2.0
#include "models/generation/grammar/byte_grammar.h"

#include <algorithm>
#include <utility>

#include "models/generation/grammar/json_characters.h"

namespace tessera::models {
namespace {

using StateId = ByteGrammar::StateId;

// Points beyond this number are dropped: the text can still be completed by the others.
constexpr size_t kMostPoints = 1024;

// A character of a JSON string: parts of it, where each byte leads. Part 0 is the beginning and the
// end.
struct Character {
  std::vector<std::array<int16_t, 256>> next;  // < 0: nowhere

  Character() {
    Nfa nfa;
    const int end = nfa.Add();
    nfa.Accept(end);
    AddJsonCharacters(0, kLastCodePoint, &nfa, nfa.start(), end);
    const Dfa dfa = *Determinise(nfa);
    next.resize(dfa.states.size());
    for (size_t s = 0; s < next.size(); ++s) {
      next[s].fill(-1);
      for (const SymbolEdge& e : dfa.states[s].edges) {
        const bool ends = dfa.states[static_cast<size_t>(e.to)].accepts;
        for (Symbol b = e.first; b <= e.last; ++b) {
          next[s][b] = static_cast<int16_t>(ends ? 0 : e.to);
        }
      }
    }
  }
  static const Character& Get() {
    static const auto* character = new Character();
    return *character;
  }
  int64_t parts() const { return std::ssize(next); }
};

}  // namespace

int ByteGrammar::AddRule() {
  rules_.emplace_back();
  return static_cast<int>(rules_.size()) - 1;
}

void ByteGrammar::Define(int rule, const Dfa& dfa) {
  const auto base = static_cast<StateId>(states_.size());
  rules_[static_cast<size_t>(rule)].start = base;
  for (const Dfa::State& from : dfa.states) {
    State& state = states_.emplace_back();
    state.accepts = from.accepts;
    for (const SymbolEdge& e : from.edges) {
      for (Symbol s = std::max(e.first, kFirstCall); s <= e.last && e.last >= kFirstCall; ++s) {
        state.calls.push_back({static_cast<int>(s - kFirstCall), base + e.to});
      }
      if (e.first <= 255) {
        state.edges.push_back({e.first, std::min<Symbol>(e.last, 255), base + e.to});
      }
    }
  }
}

void ByteGrammar::DefineText(int rule, int64_t least, std::optional<int64_t> most) {
  if (end_of_text_ < 0) {
    end_of_text_ = static_cast<StateId>(states_.size());
    states_.emplace_back().accepts = true;
  }
  const Texts& texts = texts_.emplace_back(Texts{next_text_, least, most.value_or(-1)});
  next_text_ += static_cast<StateId>(texts.blocks() * Character::Get().parts());
  rules_[static_cast<size_t>(rule)].start = static_cast<StateId>(states_.size());
  states_.emplace_back().edges = {{'"', '"', texts.base}};
}

// Rules have texts of at least a byte, so that only the calls at their starts come before it.
bool ByteGrammar::CallsItself() const {
  std::vector<int> mark(rules_.size(), 0);  // 1: on the way, 2: done
  std::vector<std::pair<int, size_t>> way;
  for (int root = 0; root < std::ssize(rules_); ++root) {
    if (mark[static_cast<size_t>(root)] != 0) continue;
    way.emplace_back(root, 0);
    mark[static_cast<size_t>(root)] = 1;
    while (!way.empty()) {
      auto& [rule, at] = way.back();
      const auto& calls = states_[Index(rule_start(rule))].calls;
      if (at == calls.size()) {
        mark[static_cast<size_t>(rule)] = 2;
        way.pop_back();
        continue;
      }
      const int next = calls[at++].rule;
      if (mark[static_cast<size_t>(next)] == 1) return true;
      if (mark[static_cast<size_t>(next)] == 0) {
        mark[static_cast<size_t>(next)] = 1;
        way.emplace_back(next, 0);
      }
    }
  }
  return false;
}

Status ByteGrammar::Finish(int root) {
  root_ = root;
  if (CallsItself()) return InvalidArgument("a rule calls itself before its first byte");
  std::array<int64_t, 256> ones;
  ones.fill(1);
  const ShortestEndings endings(*this, ones);
  if (endings.Cost(start()) >= ShortestEndings::kNever) return InvalidArgument("no text fits");
  const auto never = [&](StateId state) { return endings.Cost(state) >= ShortestEndings::kNever; };
  for (State& state : states_) {
    std::erase_if(state.edges, [&](const SymbolEdge& e) { return never(e.to); });
    std::erase_if(state.calls,
                  [&](const Call& c) { return never(c.to) || never(rule_start(c.rule)); });
  }
  bool changed = true;
  while (changed) {
    changed = false;
    for (Rule& rule : rules_) {
      const std::bitset<256> before = rule.first;
      const State& start = states_[Index(rule.start)];
      for (const SymbolEdge& e : start.edges) {
        for (Symbol b = e.first; b <= e.last; ++b) rule.first.set(b);
      }
      for (const Call& call : start.calls) rule.first |= first(call.rule);
      changed |= before != rule.first;
    }
  }
  return OkStatus();
}

ByteGrammar::Place ByteGrammar::PlaceOf(StateId state) const {
  const auto behind = std::upper_bound(texts_.begin(), texts_.end(), state,
                                       [](StateId s, const Texts& t) { return s < t.base; });
  const Texts& texts = *std::prev(behind);
  const int64_t parts = Character::Get().parts();
  const int64_t at = state - texts.base;
  return {&texts, at / parts, static_cast<int32_t>(at % parts)};
}

StateId ByteGrammar::Next(StateId state, uint8_t byte) const {
  if (plain(state)) {
    const auto& edges = states_[Index(state)].edges;
    const auto at = std::upper_bound(edges.begin(), edges.end(), byte,
                                     [](Symbol b, const SymbolEdge& e) { return b < e.first; });
    return at == edges.begin() || std::prev(at)->last < byte ? -1 : std::prev(at)->to;
  }
  const auto [texts, written, part] = PlaceOf(state);
  const Character& character = Character::Get();
  if (part == 0 && byte == '"') return written >= texts->least ? end_of_text_ : -1;
  const StateId to = character.next[static_cast<size_t>(part)][byte];
  if (to < 0) return -1;
  const StateId step = static_cast<StateId>(character.parts());
  if (part != 0) return state - part + to;
  if (texts->most < 0 && written == texts->least) return state + to;
  return written == texts->most ? -1 : state + step + to;
}

std::span<const ByteGrammar::Call> ByteGrammar::calls(StateId state) const {
  if (!plain(state)) return {};
  return states_[Index(state)].calls;
}

bool ByteGrammar::goes_on(StateId state) const {
  return !plain(state) || !states_[Index(state)].edges.empty() ||
         !states_[Index(state)].calls.empty();
}

StateId ByteGrammar::Alike(StateId state, int64_t length) const {
  if (plain(state)) return state;
  const auto [texts, written, part] = PlaceOf(state);
  const int64_t parts = Character::Get().parts();
  int64_t same = written;
  if (written < texts->least) {
    // Too far from the least length for a quote. A length that a part belongs to counts already.
    if (written + length < texts->least) same = part == 0 ? 0 : std::min<int64_t>(1, texts->least);
  } else if (texts->most >= 0 && written + length <= texts->most) {
    same = texts->least;
  }
  return texts->base + static_cast<StateId>(same * parts) + part;
}

ShortestEndings::ShortestEndings(const ByteGrammar& grammar, const std::array<int64_t, 256>& costs)
    : grammar_(grammar), quote_cost_(costs['"']) {
  AddCharacterCosts(costs);
  AddStateCosts(costs);
}

void ShortestEndings::AddCharacterCosts(const std::array<int64_t, 256>& costs) {
  const Character& character = Character::Get();
  character_.resize(character.next.size());
  // Few parts, and paths of at most twelve bytes. The first part ends at itself.
  for (size_t round = 0; round < character.next.size(); ++round) {
    for (size_t part = 0; part < character.next.size(); ++part) {
      for (int byte = 255; byte >= 0; --byte) {
        const int to = character.next[part][static_cast<size_t>(byte)];
        if (to < 0) continue;
        const int64_t rest = to == 0 ? 0 : character_[static_cast<size_t>(to)].cost;
        const int64_t cost = std::min(kNever, costs[static_cast<size_t>(byte)] + rest);
        if (cost < character_[part].cost) character_[part] = {.cost = cost, .byte = byte};
      }
    }
  }
}

void ShortestEndings::AddStateCosts(const std::array<int64_t, 256>& costs) {
  const auto& states = grammar_.states_;
  plain_.resize(states.size());
  // Whom a state's cost concerns: states with an edge to it, and with a call of a rule that it
  // starts.
  std::vector<std::vector<size_t>> before(states.size());
  for (size_t s = 0; s < states.size(); ++s) {
    for (const SymbolEdge& e : states[s].edges) {
      if (grammar_.plain(e.to)) before[ByteGrammar::Index(e.to)].push_back(s);
    }
    for (const ByteGrammar::Call& c : states[s].calls) {
      before[ByteGrammar::Index(c.to)].push_back(s);
      before[ByteGrammar::Index(grammar_.rule_start(c.rule))].push_back(s);
    }
  }
  const auto best = [&](size_t s) {
    Choice choice;
    if (states[s].accepts) choice.cost = 0;
    for (const SymbolEdge& e : states[s].edges) {
      const int64_t rest = Cost(e.to);
      for (Symbol b = e.first; b <= e.last && rest < kNever; ++b) {
        const int64_t cost = std::min(kNever - 1, costs[b] + rest);
        if (cost < choice.cost) choice = {.cost = cost, .byte = static_cast<int>(b)};
      }
    }
    for (size_t c = 0; c < states[s].calls.size(); ++c) {
      const auto& call = states[s].calls[c];
      const int64_t callee = Cost(grammar_.rule_start(call.rule));
      const int64_t rest = Cost(call.to);
      if (callee >= kNever || rest >= kNever) continue;
      const int64_t cost = std::min(kNever - 1, callee + rest);
      if (cost < choice.cost) choice = {.cost = cost, .call = static_cast<int>(c)};
    }
    return choice;
  };
  // The least cost becomes final first, as no cost is below that of its parts. Heap of (cost,
  // state), the least on top.
  std::vector<bool> final(states.size(), false);
  std::vector<std::pair<int64_t, size_t>> open;
  std::vector<Choice> tentative(states.size());
  const auto consider = [&](size_t s) {
    if (final[s]) return;
    const Choice choice = best(s);
    if (choice.cost >= tentative[s].cost) return;
    tentative[s] = choice;
    open.emplace_back(choice.cost, s);
    std::push_heap(open.begin(), open.end(), std::greater<>());
  };
  for (size_t s = 0; s < states.size(); ++s) consider(s);
  while (!open.empty()) {
    std::pop_heap(open.begin(), open.end(), std::greater<>());
    const size_t s = open.back().second;
    open.pop_back();
    if (final[s]) continue;
    final[s] = true;
    plain_[s] = tentative[s];
    for (const size_t p : before[s]) consider(p);
  }
}

int64_t ShortestEndings::Cost(StateId state) const {
  if (grammar_.plain(state)) return plain_[ByteGrammar::Index(state)].cost;
  const auto [texts, written, part] = grammar_.PlaceOf(state);
  const int64_t missing = std::max<int64_t>(0, texts->least - written);
  const int64_t rest = part == 0 ? 0 : character_[static_cast<size_t>(part)].cost;
  return std::min(kNever, rest + missing * character_[0].cost + quote_cost_);
}

bool ShortestEndings::Append(StateId state, size_t most, std::string* text) const {
  while (text->size() <= most) {
    if (!grammar_.plain(state)) {
      const auto [texts, written, part] = grammar_.PlaceOf(state);
      const bool quote = part == 0 && written >= texts->least;
      const int byte = quote ? '"' : character_[static_cast<size_t>(part)].byte;
      text->push_back(static_cast<char>(byte));
      state = grammar_.Next(state, static_cast<uint8_t>(byte));
      continue;
    }
    const Choice& choice = plain_[ByteGrammar::Index(state)];
    if (choice.cost >= kNever) return false;
    if (choice.call >= 0) {
      const auto& call = grammar_.calls(state)[static_cast<size_t>(choice.call)];
      if (!Append(grammar_.rule_start(call.rule), most, text)) return false;
      state = call.to;
    } else if (choice.byte >= 0) {
      text->push_back(static_cast<char>(choice.byte));
      state = grammar_.Next(state, static_cast<uint8_t>(choice.byte));
    } else {
      return true;
    }
  }
  return false;
}

bool GrammarPoint::operator==(const GrammarPoint& other) const {
  if (state != other.state) return false;
  const GrammarStack* a = stack.get();
  const GrammarStack* b = other.stack.get();
  for (; a != b; a = a->rest.get(), b = b->rest.get()) {
    if (a == nullptr || b == nullptr || a->to != b->to || a->depth != b->depth) return false;
  }
  return true;
}

void StepInto(const ByteGrammar& grammar, const GrammarPoint& point, uint8_t byte,
              GrammarPoints* next) {
  const StateId to = grammar.Next(point.state, byte);
  if (to >= 0) {
    GrammarPoint reached = {to, point.stack};
    if (next->size() < kMostPoints &&
        std::find(next->begin(), next->end(), reached) == next->end()) {
      next->push_back(std::move(reached));
    }
  }
  const int depth = point.stack == nullptr ? 0 : point.stack->depth;
  for (const ByteGrammar::Call& call : grammar.calls(point.state)) {
    if (!grammar.first(call.rule).test(byte)) continue;
    const StateId start = grammar.rule_start(call.rule);
    if (!grammar.goes_on(call.to)) {
      // The caller ends with the call: it is returned to where the caller is.
      StepInto(grammar, {start, point.stack}, byte, next);
    } else if (depth < kDeepestCall) {
      StepInto(grammar,
               {start, std::make_shared<const GrammarStack>(
                           GrammarStack{call.to, point.stack, depth + 1})},
               byte, next);
    }
  }
  if (point.stack != nullptr && grammar.accepts(point.state)) {
    StepInto(grammar, {point.stack->to, point.stack->rest}, byte, next);
  }
}

bool MayEnd(const ByteGrammar& grammar, const GrammarPoint& point) {
  if (!grammar.accepts(point.state)) return false;
  for (const GrammarStack* at = point.stack.get(); at != nullptr; at = at->rest.get()) {
    if (!grammar.accepts(at->to)) return false;
  }
  return true;
}

bool GrammarState::Advance(uint8_t byte) {
  GrammarPoints next;
  for (const GrammarPoint& point : points_) StepInto(*grammar_, point, byte, &next);
  if (next.empty()) return false;
  points_ = std::move(next);
  return true;
}

bool GrammarState::Advance(std::string_view bytes) {
  GrammarState ahead = *this;
  for (const char c : bytes) {
    if (!ahead.Advance(static_cast<uint8_t>(c))) return false;
  }
  *this = std::move(ahead);
  return true;
}

bool GrammarState::complete() const {
  return std::any_of(points_.begin(), points_.end(),
                     [&](const GrammarPoint& p) { return MayEnd(*grammar_, p); });
}

bool GrammarState::finished() const {
  const auto ends = [&](const GrammarPoint& point) {
    if (grammar_->goes_on(point.state)) return false;
    for (const GrammarStack* at = point.stack.get(); at != nullptr; at = at->rest.get()) {
      if (grammar_->goes_on(at->to)) return false;
    }
    return true;
  };
  return std::all_of(points_.begin(), points_.end(), ends);
}

}  // namespace tessera::models
