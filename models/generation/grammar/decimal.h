// SPDX-License-Identifier: Apache-2.0
// Decimal numbers of any size, and the automata of ranges of them.
//
//   const std::optional<Decimal> least = Decimal::Parse("-1.5e3");
//   DecimalRange range;
//   range.AtLeast(*least, /*open=*/false);
//   const std::optional<Dfa> dfa = range.Automaton(/*integers=*/true, /*multiple_of=*/{});
//
// Numbers are written as JSON has them. With a bound they have no exponent.
#ifndef TESSERA_MODELS_GENERATION_GRAMMAR_DECIMAL_H_
#define TESSERA_MODELS_GENERATION_GRAMMAR_DECIMAL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "models/generation/grammar/automaton.h"

namespace tessera::models {

struct Decimal {
  bool negative = false;
  std::string whole;     // without zeros in front; "0" for none
  std::string fraction;  // without zeros behind

  // Of a JSON number; nullopt: none, or with an exponent beyond a thousand.
  static std::optional<Decimal> Parse(std::string_view text);
  // < 0, 0 or > 0.
  int Compare(const Decimal& other) const;
  bool is_zero() const { return whole == "0" && fraction.empty(); }
  std::string ToText() const;
};

// What numbers are multiples of: 12.5 is 125 units with 1 place behind the point.
class DecimalStep {
 public:
  // nullopt: 0, or more than the automaton of its remainders may have.
  static std::optional<DecimalStep> Of(const Decimal& value);
  // The least common multiple; nullopt as above.
  std::optional<DecimalStep> And(const DecimalStep& other) const;

  bool is_integer() const { return places_ == 0; }
  // Its multiples, with no more places than it has.
  Dfa Multiples() const;
  std::string Key() const;

  static constexpr int64_t kMostUnits = 10'000;  // each remainder is a state
  static constexpr size_t kMostPlaces = 9;

 private:
  DecimalStep(int64_t units, size_t places) : units_(units), places_(places) {}
  static std::optional<DecimalStep> Least(int64_t units, size_t places);

  int64_t units_;
  size_t places_;
};

class DecimalRange {
 public:
  // Narrows the range. `open`: without the bound itself.
  void AtLeast(const Decimal& bound, bool open);
  void AtMost(const Decimal& bound, bool open);

  // Numbers in range. A fraction behind an open bound has as many digits as doubles tell apart.
  // nullopt: too many states.
  std::optional<Dfa> Automaton(bool integers, const std::optional<DecimalStep>& multiple_of) const;

  // Equal for equal ranges.
  std::string Key() const;

  struct Bound {
    Decimal value;
    bool open = false;
  };

 private:
  void AddInRange(bool integers, int minus, int end, Nfa* nfa) const;

  std::optional<Bound> least_;
  std::optional<Bound> most_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_GRAMMAR_DECIMAL_H_
