// SPDX-License-Identifier: Apache-2.0
#include "models/generation/grammar/json_characters.h"

#include <algorithm>
#include <span>

#include "base/utf8.h"

namespace tessera::models {
namespace {

// A digit of a code point, in the base 2^bits, and how it is written: `before`, then the byte
// `offset` + digit, or that as a hexadecimal digit.
struct Digit {
  int bits;
  std::string_view before;
  Symbol offset;
  bool hexadecimal = false;
};

constexpr Digit kOneByte[] = {{7, "", 0}};
constexpr Digit kTwoBytes[] = {{5, "", 0xC0}, {6, "", 0x80}};
constexpr Digit kThreeBytes[] = {{4, "", 0xE0}, {6, "", 0x80}, {6, "", 0x80}};
constexpr Digit kFourBytes[] = {{3, "", 0xF0}, {6, "", 0x80}, {6, "", 0x80}, {6, "", 0x80}};
constexpr Digit kEscape[] = {
    {4, "\\u", 0, true}, {4, "", 0, true}, {4, "", 0, true}, {4, "", 0, true}};
// Of a code point less 0x10000. The letter D may be small.
constexpr Digit kPair[] = {{2, "\\uD", 8, true},  {4, "", 0, true}, {4, "", 0, true},
                           {2, "\\uD", 12, true}, {4, "", 0, true}, {4, "", 0, true}};

void AddDigit(const Digit& digit, Symbol first, Symbol last, Nfa* nfa, int from, int to) {
  for (const char c : digit.before) {
    const int next = nfa->Add();
    nfa->Edge(from, static_cast<Symbol>(c), next);
    if (c == 'D') nfa->Edge(from, 'd', next);
    from = next;
  }
  first += digit.offset;
  last += digit.offset;
  if (!digit.hexadecimal) return nfa->Edge(from, first, last, to);
  if (first <= 9) nfa->Edge(from, '0' + first, '0' + std::min<Symbol>(last, 9), to);
  if (last < 10) return;
  const Symbol letter = std::max<Symbol>(first, 10) - 10;
  nfa->Edge(from, 'a' + letter, 'a' + last - 10, to);
  nfa->Edge(from, 'A' + letter, 'A' + last - 10, to);
}

void AddDigits(std::span<const Digit> digits, Symbol first, Symbol last, Nfa* nfa, int from,
               int to) {
  if (digits.size() == 1) return AddDigit(digits[0], first, last, nfa, from, to);
  const auto rest = digits.subspan(1);
  int bits = 0;
  for (const Digit& digit : rest) bits += digit.bits;
  const Symbol mask = (Symbol{1} << bits) - 1;
  const auto add = [&](Symbol low, Symbol high, Symbol rest_first, Symbol rest_last) {
    const int middle = nfa->Add();
    AddDigit(digits[0], low, high, nfa, from, middle);
    AddDigits(rest, rest_first, rest_last, nfa, middle, to);
  };
  Symbol low = first >> bits;
  Symbol high = last >> bits;
  if (low == high) return add(low, low, first & mask, last & mask);
  if ((first & mask) != 0) {
    add(low, low, first & mask, mask);
    ++low;
  }
  if ((last & mask) != mask) {
    add(high, high, 0, last & mask);
    if (high == low) return;
    --high;
  }
  if (low <= high) add(low, high, 0, mask);
}

// The part of first to last that lies within least to most.
void AddWithin(Symbol least, Symbol most, std::span<const Digit> digits, Symbol first, Symbol last,
               Nfa* nfa, int from, int to) {
  first = std::max(first, least);
  last = std::min(last, most);
  const Symbol shift = least == 0x10000 && digits.size() == std::size(kPair) ? 0x10000 : 0;
  if (first <= last) AddDigits(digits, first - shift, last - shift, nfa, from, to);
}

}  // namespace

void AddJsonCharacters(Symbol first, Symbol last, Nfa* nfa, int from, int to) {
  const auto within = [&](Symbol least, Symbol most, std::span<const Digit> digits) {
    AddWithin(least, most, digits, first, last, nfa, from, to);
  };
  within(0x20, 0x21, kOneByte);  // up to the quote
  within(0x23, 0x5B, kOneByte);  // up to the backslash
  within(0x5D, 0x7F, kOneByte);
  within(0x80, 0x7FF, kTwoBytes);
  within(0x800, 0xD7FF, kThreeBytes);
  within(0xE000, 0xFFFF, kThreeBytes);
  within(0x10000, kLastCodePoint, kFourBytes);
  within(0, 0x1F, kEscape);
  within(0x7F, 0xD7FF, kEscape);
  within(0xE000, 0xFFFF, kEscape);
  within(0x10000, kLastCodePoint, kPair);
  constexpr std::string_view kShort = "\"\"\\\\//\bb\ff\nn\rr\tt";
  int escaped = -1;
  for (size_t i = 0; i < kShort.size(); i += 2) {
    const auto character = static_cast<Symbol>(kShort[i]);
    if (character < first || character > last) continue;
    if (escaped < 0) {
      escaped = nfa->Add();
      nfa->Edge(from, '\\', escaped);
    }
    nfa->Edge(escaped, static_cast<Symbol>(kShort[i + 1]), to);
  }
}

std::vector<Symbol> CodePoints(std::string_view text) {
  std::vector<Symbol> points;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    points.push_back(c.code_point);
    i += static_cast<size_t>(c.length);
  }
  return points;
}

int AddJsonText(std::string_view text, Nfa* nfa, int from) {
  for (const Symbol point : CodePoints(text)) {
    const int to = nfa->Add();
    AddJsonCharacters(point, point, nfa, from, to);
    from = to;
  }
  return from;
}

std::optional<Dfa> QuotedJson(const Dfa& characters) {
  Nfa nfa;
  const int first = nfa.Text(nfa.start(), "\"");
  std::vector<int> states = {first};
  while (states.size() < characters.states.size()) states.push_back(nfa.Add());
  const int end = nfa.Add();
  for (size_t s = 0; s < states.size(); ++s) {
    for (const SymbolEdge& e : characters.states[s].edges) {
      AddJsonCharacters(e.first, e.last, &nfa, states[s], states[static_cast<size_t>(e.to)]);
    }
    if (characters.states[s].accepts) nfa.Edge(states[s], '"', end);
    if (nfa.states().size() > 10 * kMostStates) return std::nullopt;
  }
  nfa.Accept(end);
  return Determinise(nfa);
}

}  // namespace tessera::models
