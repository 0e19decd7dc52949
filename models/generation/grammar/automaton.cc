// SPDX-License-Identifier: Apache-2.0
#include "models/generation/grammar/automaton.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tessera::models {
namespace {

using Set = std::vector<int>;  // sorted

// Of all sets of a subset construction together: a bound of its time and memory.
constexpr size_t kMostMembers = 2'000'000;

// Adds to sets of states what can be reached from them without a symbol.
class Closures {
 public:
  explicit Closures(const Nfa& nfa) : nfa_(nfa), seen_(nfa.states().size(), 0) {}

  // `at_start`, `at_end`: where in the text this is.
  Set Of(Set set, bool at_start, bool at_end) {
    ++round_;
    for (const int state : set) seen_[static_cast<size_t>(state)] = round_;
    const auto visit = [&](const std::vector<int>& states) {
      for (const int state : states) {
        if (std::exchange(seen_[static_cast<size_t>(state)], round_) != round_) {
          set.push_back(state);
        }
      }
    };
    for (size_t i = 0; i < set.size(); ++i) {
      const Nfa::State& state = nfa_.states()[static_cast<size_t>(set[i])];
      visit(state.empty);
      if (at_start) visit(state.at_start);
      if (at_end) visit(state.at_end);
    }
    std::sort(set.begin(), set.end());
    return set;
  }

  bool Accept(const Set& set, bool at_start) {
    const auto accepts = [&](int s) { return nfa_.states()[static_cast<size_t>(s)].accepts; };
    const auto ends = [&](int s) { return !nfa_.states()[static_cast<size_t>(s)].at_end.empty(); };
    if (std::any_of(set.begin(), set.end(), accepts)) return true;
    if (std::none_of(set.begin(), set.end(), ends)) return false;
    const Set end = Of(set, at_start, true);
    return std::any_of(end.begin(), end.end(), accepts);
  }

 private:
  const Nfa& nfa_;
  std::vector<int> seen_;  // the last round that a state was seen in
  int round_ = 0;
};

// Appends an edge, joined to the one before it where they touch.
void Append(Symbol first, Symbol last, int to, std::vector<SymbolEdge>* edges) {
  if (!edges->empty() && edges->back().to == to && edges->back().last + 1 == first) {
    edges->back().last = last;
  } else {
    edges->push_back({first, last, to});
  }
}

// Calls f with maximal ranges on which the edges' targets are the same, in order.
template <typename F>
void ForEachRange(const std::vector<SymbolEdge>& edges, const F& f) {
  std::vector<std::pair<Symbol, int>> marks;  // where an edge begins (index) or ended (~index)
  for (size_t i = 0; i < edges.size(); ++i) {
    marks.emplace_back(edges[i].first, static_cast<int>(i));
    marks.emplace_back(edges[i].last + 1, ~static_cast<int>(i));
  }
  std::sort(marks.begin(), marks.end());
  std::map<int, int> active;  // targets, and how many edges lead there
  for (size_t i = 0; i < marks.size();) {
    const Symbol at = marks[i].first;
    for (; i < marks.size() && marks[i].first == at; ++i) {
      const int mark = marks[i].second;
      const int to = edges[static_cast<size_t>(mark < 0 ? ~mark : mark)].to;
      if (mark >= 0) {
        ++active[to];
      } else if (--active[to] == 0) {
        active.erase(to);
      }
    }
    if (active.empty() || i == marks.size()) continue;
    Set targets;
    for (const auto& [to, count] : active) targets.push_back(to);
    f(at, marks[i].first - 1, std::move(targets));
  }
}

// Drops states from which nothing is accepted.
Dfa Trimmed(Dfa dfa) {
  const size_t n = dfa.states.size();
  std::vector<std::vector<int>> before(n);
  std::vector<int> open;
  std::vector<bool> alive(n);
  for (size_t s = 0; s < n; ++s) {
    for (const SymbolEdge& e : dfa.states[s].edges) {
      before[static_cast<size_t>(e.to)].push_back(static_cast<int>(s));
    }
    if (!dfa.states[s].accepts) continue;
    alive[s] = true;
    open.push_back(static_cast<int>(s));
  }
  while (!open.empty()) {
    const auto s = static_cast<size_t>(open.back());
    open.pop_back();
    for (const int p : before[s]) {
      if (alive[static_cast<size_t>(p)]) continue;
      alive[static_cast<size_t>(p)] = true;
      open.push_back(p);
    }
  }
  alive[0] = true;
  std::vector<int> number(n, -1);
  Dfa trimmed;
  int next = 0;
  for (size_t s = 0; s < n; ++s) number[s] = alive[s] ? next++ : -1;
  for (size_t s = 0; s < n; ++s) {
    if (!alive[s]) continue;
    Dfa::State& state = trimmed.states.emplace_back();
    state.accepts = dfa.states[s].accepts;
    for (const SymbolEdge& e : dfa.states[s].edges) {
      const int to = number[static_cast<size_t>(e.to)];
      if (to >= 0) state.edges.push_back({e.first, e.last, to});
    }
  }
  return trimmed;
}

}  // namespace

int Nfa::Add() {
  states_.emplace_back();
  return static_cast<int>(states_.size()) - 1;
}

void Nfa::Edge(int from, Symbol first, Symbol last, int to) {
  at(from).edges.push_back({first, last, to});
}
void Nfa::Empty(int from, int to) { at(from).empty.push_back(to); }
void Nfa::AtStart(int from, int to) { at(from).at_start.push_back(to); }
void Nfa::AtEnd(int from, int to) { at(from).at_end.push_back(to); }
void Nfa::Accept(int state) { at(state).accepts = true; }

int Nfa::Text(int from, std::string_view bytes) {
  for (const char c : bytes) {
    const int to = Add();
    Edge(from, static_cast<uint8_t>(c), to);
    from = to;
  }
  return from;
}

int Dfa::State::Next(Symbol symbol) const {
  const auto at =
      std::upper_bound(edges.begin(), edges.end(), symbol,
                       [](Symbol value, const SymbolEdge& edge) { return value < edge.first; });
  return at == edges.begin() || std::prev(at)->last < symbol ? -1 : std::prev(at)->to;
}

bool Dfa::Accepts(const std::vector<Symbol>& symbols) const {
  int state = 0;
  for (const Symbol symbol : symbols) {
    state = states[static_cast<size_t>(state)].Next(symbol);
    if (state < 0) return false;
  }
  return states[static_cast<size_t>(state)].accepts;
}

std::optional<Dfa> Determinise(const Nfa& nfa, size_t most) {
  Dfa dfa;
  Closures closures(nfa);
  size_t members = 0;
  std::map<Set, int> numbers;
  std::vector<const Set*> sets;
  const auto number_of = [&](Set set) {
    const auto [at, added] = numbers.emplace(std::move(set), static_cast<int>(sets.size()));
    if (added) sets.push_back(&at->first);
    return at->second;
  };
  // The start is a state of its own: no set that comes later may be taken for it, as it alone is at
  // the start of the text. An impossible member tells it apart.
  Set start = closures.Of({nfa.start()}, true, false);
  start.insert(start.begin(), -1);
  number_of(start);
  for (size_t i = 0; i < sets.size(); ++i) {
    members += sets[i]->size();
    if (sets.size() > most || members > kMostMembers) return std::nullopt;
    Set set = *sets[i];
    if (i == 0) set.erase(set.begin());
    Dfa::State state;
    state.accepts = closures.Accept(set, i == 0);
    std::vector<SymbolEdge> edges;
    for (const int s : set) {
      const auto& out = nfa.states()[static_cast<size_t>(s)].edges;
      edges.insert(edges.end(), out.begin(), out.end());
    }
    ForEachRange(edges, [&](Symbol first, Symbol last, Set targets) {
      Append(first, last, number_of(closures.Of(std::move(targets), false, false)), &state.edges);
    });
    dfa.states.push_back(std::move(state));
  }
  return Trimmed(std::move(dfa));
}

std::optional<Dfa> Pair(const Dfa& a, const Dfa& b, Pairing pairing, size_t most) {
  Dfa dfa;
  std::map<std::pair<int, int>, int> numbers;
  std::vector<std::pair<int, int>> pairs;
  const auto number_of = [&](int s, int t) {
    const auto [at, added] = numbers.emplace(std::pair(s, t), static_cast<int>(pairs.size()));
    if (added) pairs.emplace_back(s, t);
    return at->second;
  };
  number_of(0, 0);
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs.size() > most) return std::nullopt;
    const auto [s, t] = pairs[i];
    const Dfa::State& left = a.states[static_cast<size_t>(s)];
    static const Dfa::State none;
    const Dfa::State& right = t < 0 ? none : b.states[static_cast<size_t>(t)];
    Dfa::State state;
    state.accepts = left.accepts && right.accepts == (pairing == Pairing::kBoth);
    for (const SymbolEdge& edge : left.edges) {
      Symbol at = edge.first;
      while (at <= edge.last) {
        // The edge of `b` at this symbol, or the gap up to the next one.
        Symbol last = edge.last;
        int to = -1;
        for (const SymbolEdge& other : right.edges) {
          if (other.last < at) continue;
          if (other.first <= at) {
            to = other.to;
            last = std::min(last, other.last);
          } else {
            last = std::min(last, other.first - 1);
          }
          break;
        }
        if (to >= 0 || pairing == Pairing::kFirstOnly) {
          Append(at, last, number_of(edge.to, to), &state.edges);
        }
        at = last + 1;
      }
    }
    dfa.states.push_back(std::move(state));
  }
  return Trimmed(std::move(dfa));
}

void Embed(const Dfa& dfa, Nfa* nfa, int from, int to) {
  std::vector<int> states;
  for (size_t s = 0; s < dfa.states.size(); ++s) states.push_back(nfa->Add());
  nfa->Empty(from, states[0]);
  for (size_t s = 0; s < dfa.states.size(); ++s) {
    for (const SymbolEdge& e : dfa.states[s].edges) {
      nfa->Edge(states[s], e.first, e.last, states[static_cast<size_t>(e.to)]);
    }
    if (dfa.states[s].accepts) nfa->Empty(states[s], to);
  }
}

}  // namespace tessera::models
