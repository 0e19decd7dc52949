// SPDX-License-Identifier: Apache-2.0
#include "models/generation/grammar/pattern.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "models/generation/grammar/json_characters.h"

namespace tessera::models {
namespace {

constexpr int kDeepest = 100;             // nested groups
constexpr int64_t kMostRepeats = 10'000;  // in {m,n}
constexpr size_t kMostPatternStates = 4'000;
constexpr size_t kMostParts = 100'000;  // states before the subset construction

using Ranges = std::vector<std::pair<Symbol, Symbol>>;

Ranges Digits() { return {{'0', '9'}}; }
Ranges WordCharacters() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
Ranges Blanks() {
  return {{0x9, 0xD},       {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}
Ranges LineEnds() { return {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}; }

Ranges Complement(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end());
  Ranges others;
  Symbol next = 0;
  for (const auto& [first, last] : ranges) {
    if (first > next) others.emplace_back(next, first - 1);
    next = std::max(next, last + 1);
  }
  if (next <= kLastCodePoint) others.emplace_back(next, kLastCodePoint);
  return others;
}

struct Part {
  enum class Kind { kCharacters, kSequence, kAlternatives, kRepeat, kStart, kEnd };
  Kind kind;
  Ranges ranges = {};
  std::vector<Part> parts = {};
  int64_t least = 0;
  int64_t most = -1;  // < 0: any number
};

class Parser {
 public:
  explicit Parser(std::string_view pattern) : text_(CodePoints(pattern)) {}

  StatusOr<Part> Parse() {
    TESSERA_ASSIGN_OR_RETURN(Part part, Alternatives(0));
    if (at_ < text_.size()) return InvalidArgument("')' without '('");
    return part;
  }

 private:
  bool Take(Symbol symbol) {
    if (at_ == text_.size() || text_[at_] != symbol) return false;
    ++at_;
    return true;
  }
  bool More() const { return at_ < text_.size(); }

  StatusOr<Part> Alternatives(int depth) {
    if (depth > kDeepest) return InvalidArgument("groups are nested too deeply");
    Part all{.kind = Part::Kind::kAlternatives};
    do {
      Part sequence{.kind = Part::Kind::kSequence};
      while (More() && text_[at_] != '|' && text_[at_] != ')') {
        TESSERA_ASSIGN_OR_RETURN(Part part, Atom(depth));
        TESSERA_ASSIGN_OR_RETURN(part, Quantified(std::move(part)));
        sequence.parts.push_back(std::move(part));
      }
      all.parts.push_back(std::move(sequence));
    } while (Take('|'));
    return all;
  }

  StatusOr<Part> Atom(int depth) {
    const Symbol symbol = text_[at_++];
    switch (symbol) {
      case '^':
        return Part{.kind = Part::Kind::kStart};
      case '$':
        return Part{.kind = Part::Kind::kEnd};
      case '.':
        return Characters(Complement(LineEnds()));
      case '(':
        return Group(depth);
      case '[':
        return Class();
      case '\\': {
        TESSERA_ASSIGN_OR_RETURN(Ranges ranges, Escape(false));
        return Characters(std::move(ranges));
      }
      case '*':
      case '+':
      case '?':
        return InvalidArgument("nothing to repeat before '", static_cast<char>(symbol), "'");
      default:
        return Characters({{symbol, symbol}});
    }
  }

  static Part Characters(Ranges ranges) {
    return {.kind = Part::Kind::kCharacters, .ranges = std::move(ranges)};
  }

  StatusOr<Part> Group(int depth) {
    if (Take('?') && !Take(':')) {
      const bool name = Take('<') && More() && text_[at_] != '=' && text_[at_] != '!';
      if (!name) return InvalidArgument("'(?' is supported as '(?:' and '(?<name>' only");
      while (More() && text_[at_] != '>') ++at_;
      Take('>');
    }
    TESSERA_ASSIGN_OR_RETURN(Part part, Alternatives(depth + 1));
    if (!Take(')')) return InvalidArgument("'(' without ')'");
    return part;
  }

  StatusOr<Part> Quantified(Part part) {
    int64_t least = 1;
    int64_t most = 1;
    if (Take('*')) {
      std::tie(least, most) = std::pair(0, -1);
    } else if (Take('+')) {
      most = -1;
    } else if (Take('?')) {
      least = 0;
    } else if (!TakeCounts(&least, &most)) {
      return part;
    }
    Take('?');  // a lazy quantifier accepts the same
    if (least > kMostRepeats || most > kMostRepeats) {
      return InvalidArgument("more than ", kMostRepeats, " repetitions");
    }
    if (most >= 0 && most < least) return InvalidArgument("a range {m,n} is out of order");
    Part repeat{.kind = Part::Kind::kRepeat};
    repeat.parts.push_back(std::move(part));
    repeat.least = least;
    repeat.most = most;
    return repeat;
  }

  // "{m}", "{m,}" or "{m,n}"; any other brace is a character.
  bool TakeCounts(int64_t* least, int64_t* most) {
    const size_t begin = at_;
    if (!Take('{')) return false;
    bool good = TakeNumber(least);
    *most = *least;
    if (good && Take(',') && !TakeNumber(most)) *most = -1;
    good = good && Take('}');
    if (!good) at_ = begin;
    return good;
  }

  bool TakeNumber(int64_t* number) {
    const size_t begin = at_;
    *number = 0;
    for (; More() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      *number = std::min<int64_t>(*number * 10 + text_[at_] - '0', kMostRepeats + 1);
    }
    return at_ > begin;
  }

  StatusOr<Symbol> Hexadecimal(size_t digits) {
    Symbol value = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const Symbol c = More() ? text_[at_] | 0x20 : 0;
      if (c >= '0' + 0x0 && c <= '9') {
        value = value * 16 + c - '0';
      } else if (c >= 'a' && c <= 'f') {
        value = value * 16 + c - 'a' + 10;
      } else {
        return InvalidArgument("a hexadecimal escape lacks digits");
      }
    }
    return value;
  }

  StatusOr<Ranges> CodePointEscape() {
    if (Take('{')) {
      Symbol value = 0;
      while (More() && text_[at_] != '}' && value <= kLastCodePoint) {
        TESSERA_ASSIGN_OR_RETURN(const Symbol digit, Hexadecimal(1));
        value = value * 16 + digit;
      }
      if (!Take('}') || value > kLastCodePoint) return InvalidArgument("\\u{...} is malformed");
      return Ranges{{value, value}};
    }
    TESSERA_ASSIGN_OR_RETURN(Symbol value, Hexadecimal(4));
    if (value >= 0xD800 && value < 0xDC00 && at_ + 1 < text_.size() && text_[at_] == '\\' &&
        text_[at_ + 1] == 'u') {
      at_ += 2;
      TESSERA_ASSIGN_OR_RETURN(const Symbol low, Hexadecimal(4));
      if (low < 0xDC00 || low > 0xDFFF) return InvalidArgument("half a pair of surrogates");
      value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
    return Ranges{{value, value}};
  }

  // Behind a backslash.
  StatusOr<Ranges> Escape(bool in_class) {
    if (!More()) return InvalidArgument("ends with a backslash");
    const Symbol symbol = text_[at_++];
    const auto one = [](Symbol s) { return Ranges{{s, s}}; };
    switch (symbol) {
      case 'd':
        return Digits();
      case 'D':
        return Complement(Digits());
      case 'w':
        return WordCharacters();
      case 'W':
        return Complement(WordCharacters());
      case 's':
        return Blanks();
      case 'S':
        return Complement(Blanks());
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        return one(0);
      case 'u':
        return CodePointEscape();
      case 'x': {
        TESSERA_ASSIGN_OR_RETURN(const Symbol value, Hexadecimal(2));
        return one(value);
      }
      default:
        break;
    }
    if (symbol == 'b' && in_class) return one('\b');
    const bool letter = (symbol | 0x20) >= 'a' && (symbol | 0x20) <= 'z';
    if (letter || (symbol >= '1' && symbol <= '9')) {
      return InvalidArgument("'\\", static_cast<char>(symbol), "' is not supported");
    }
    return one(symbol);
  }

  StatusOr<Ranges> ClassMember() {
    if (Take('\\')) return Escape(true);
    const Symbol symbol = text_[at_++];
    return Ranges{{symbol, symbol}};
  }

  StatusOr<Part> Class() {
    const bool negated = Take('^');
    Ranges all;
    while (More() && text_[at_] != ']') {
      TESSERA_ASSIGN_OR_RETURN(Ranges ranges, ClassMember());
      const bool single = ranges.size() == 1 && ranges[0].first == ranges[0].second;
      if (single && at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        TESSERA_ASSIGN_OR_RETURN(const Ranges last, ClassMember());
        if (last.size() != 1 || last[0].first != last[0].second ||
            last[0].first < ranges[0].first) {
          return InvalidArgument("a range in [...] is out of order");
        }
        ranges[0].second = last[0].first;
      }
      all.insert(all.end(), ranges.begin(), ranges.end());
    }
    if (!Take(']')) return InvalidArgument("'[' without ']'");
    return Characters(negated ? Complement(std::move(all)) : std::move(all));
  }

  const std::vector<Symbol> text_;
  size_t at_ = 0;
};

// The state behind `part`; < 0: too many states.
int Build(const Part& part, Nfa* nfa, int from) {
  using Kind = Part::Kind;
  if (from < 0 || nfa->states().size() > kMostParts) return -1;
  const int end = nfa->Add();
  switch (part.kind) {
    case Kind::kStart:
      nfa->AtStart(from, end);
      break;
    case Kind::kEnd:
      nfa->AtEnd(from, end);
      break;
    case Kind::kCharacters:
      for (const auto& [first, last] : part.ranges) nfa->Edge(from, first, last, end);
      break;
    case Kind::kSequence:
      for (const Part& next : part.parts) from = Build(next, nfa, from);
      if (from >= 0) nfa->Empty(from, end);
      break;
    case Kind::kAlternatives:
      for (const Part& next : part.parts) {
        const int to = Build(next, nfa, from);
        if (to < 0) return -1;
        nfa->Empty(to, end);
      }
      break;
    case Kind::kRepeat: {
      for (int64_t i = 0; i < part.least; ++i) from = Build(part.parts[0], nfa, from);
      if (from < 0) return -1;
      if (part.most < 0) {
        const int again = nfa->Add();
        nfa->Empty(from, again);
        from = Build(part.parts[0], nfa, again);
        if (from >= 0) nfa->Empty(from, again);
        nfa->Empty(again, end);
        break;
      }
      for (int64_t i = part.least; i < part.most && from >= 0; ++i) {
        nfa->Empty(from, end);
        from = Build(part.parts[0], nfa, from);
      }
      if (from >= 0) nfa->Empty(from, end);
      break;
    }
  }
  return from < 0 ? -1 : end;
}

}  // namespace

StatusOr<Dfa> PatternAutomaton(std::string_view pattern) {
  TESSERA_ASSIGN_OR_RETURN(const Part part, Parser(pattern).Parse());
  Nfa nfa;
  // What may come before the match: nothing, so that ^ holds, or something.
  const int begin = nfa.Add();
  const int before = nfa.Add();
  nfa.Empty(nfa.start(), begin);
  nfa.Edge(nfa.start(), 0, kLastCodePoint, before);
  nfa.Edge(before, 0, kLastCodePoint, before);
  nfa.Empty(before, begin);
  const int end = Build(part, &nfa, begin);
  if (end >= 0) {
    const int behind = nfa.Add();
    nfa.Empty(end, behind);
    nfa.Edge(behind, 0, kLastCodePoint, behind);
    nfa.Accept(behind);
    if (std::optional<Dfa> dfa = Determinise(nfa, kMostPatternStates)) return *std::move(dfa);
  }
  return InvalidArgument("needs too many states");
}

}  // namespace tessera::models
