// SPDX-License-Identifier: Apache-2.0
#include "models/generation/grammar/decimal.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

namespace tessera::models {
namespace {

constexpr int kMostExponent = 1000;
// Decimals with so many digits are told apart by doubles.
constexpr size_t kDoubleDigits = 15;

using Bound = DecimalRange::Bound;

int CompareMagnitudes(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  const int whole = a.whole.compare(b.whole);
  return whole != 0 ? whole : a.fraction.compare(b.fraction);
}

// Magnitudes from `least` to `most` (nullptr: any), neither negative, digit by digit. A state knows
// its place and whether all digits so far are those of a bound ("tight"): only then does the bound
// limit the next one.
class Magnitudes {
 public:
  Magnitudes(const Bound& least, const Bound* most, bool integers, Nfa* nfa, int to)
      : least_(least), most_(most), integers_(integers), nfa_(nfa), to_(to) {
    fraction_size_ = std::max<size_t>(1, least.value.fraction.size());
    if (most != nullptr) fraction_size_ = std::max(fraction_size_, most->value.fraction.size());
    ends_ = least.open || (most != nullptr && most->open);
    const size_t whole = (most != nullptr ? most->value : least.value).whole.size();
    if (ends_ && whole < kDoubleDigits) {
      fraction_size_ = std::max(fraction_size_, kDoubleDigits - whole);
    }
  }

  void AddFrom(int from) {
    const size_t shortest = least_.value.whole.size();
    const size_t longest = most_ != nullptr ? most_->value.whole.size() : shortest;
    for (const size_t size : {shortest, longest}) {
      nfa_->Empty(from, Whole(size, 0, size == shortest, most_ != nullptr && size == longest));
      if (shortest == longest) break;
    }
    if (most_ == nullptr || longest > shortest + 1) AddBetween(from, shortest, longest);
  }

 private:
  using Key = std::tuple<size_t, size_t, bool, bool, bool>;

  // Numbers of more digits than `least` and fewer than `most`.
  void AddBetween(int from, size_t shortest, size_t longest) {
    int state = nfa_->Add();
    nfa_->Edge(from, '1', '9', state);
    for (size_t i = 1; i <= shortest; ++i) {
      const int next = nfa_->Add();
      nfa_->Edge(state, '0', '9', next);
      state = next;
    }
    for (size_t size = shortest + 1;; ++size) {
      Finish(state, 0, false, false);
      if (most_ == nullptr) return nfa_->Edge(state, '0', '9', state);
      if (size + 1 == longest) return;
      const int next = nfa_->Add();
      nfa_->Edge(state, '0', '9', next);
      state = next;
    }
  }

  void AddDigits(int from, size_t at, bool first, const std::string* low, const std::string* high,
                 const auto& next) {
    const auto digit = [&](const std::string& text) { return at < text.size() ? text[at] : '0'; };
    const char least = low != nullptr ? digit(*low) : first ? '1' : '0';
    const char most = high != nullptr ? digit(*high) : '9';
    for (char c = least; c <= most; ++c) {
      nfa_->Edge(from, static_cast<Symbol>(c),
                 next(low != nullptr && c == least, high != nullptr && c == most));
    }
  }

  int Whole(size_t size, size_t at, bool low, bool high) {
    const auto [found, added] = states_.try_emplace(Key(size, at, false, low, high), 0);
    if (!added) return found->second;
    const int state = found->second = nfa_->Add();
    if (at == size) {
      Finish(state, 0, low, high);
    } else {
      AddDigits(state, at, at == 0 && size > 1, low ? &least_.value.whole : nullptr,
                high ? &most_->value.whole : nullptr,
                [&](bool l, bool h) { return Whole(size, at + 1, l, h); });
    }
    return state;
  }

  // Behind `at` digits of the fraction.
  int Fraction(size_t at, bool low, bool high) {
    const auto [found, added] = states_.try_emplace(Key(0, at, true, low, high), 0);
    if (!added) return found->second;
    const int state = found->second = nfa_->Add();
    if (at > 0 && Ends(at, low, high)) nfa_->Empty(state, to_);
    if (ends_ && at == fraction_size_) return state;
    AddDigits(state, at, false, low ? &least_.value.fraction : nullptr,
              high ? &most_->value.fraction : nullptr,
              [&](bool l, bool h) { return Fraction(std::min(at + 1, fraction_size_), l, h); });
    return state;
  }

  // The number may end here, or have a fraction.
  void Finish(int state, size_t at, bool low, bool high) {
    if (Ends(at, low, high)) nfa_->Empty(state, to_);
    if (!integers_) nfa_->Edge(state, '.', Fraction(0, low, high));
  }

  // Whether a number in range ends behind `at` digits of the fraction.
  bool Ends(size_t at, bool low, bool high) const {
    if (low) {
      const bool equal = at >= least_.value.fraction.size();
      if (!equal || least_.open) return false;
    }
    return !high || !most_->open || at < most_->value.fraction.size();
  }

  const Bound& least_;
  const Bound* most_;
  const bool integers_;
  Nfa* nfa_;
  const int to_;
  size_t fraction_size_;
  bool ends_;  // fractions do, at that size
  std::map<Key, int> states_;
};

// Any number: digits, a fraction, an exponent that a double has room for.
void AddAnyNumber(Nfa* nfa, int from, int to) {
  const auto digits = [&](int begin) {  // one or more
    const int state = nfa->Add();
    nfa->Edge(begin, '0', '9', state);
    nfa->Edge(state, '0', '9', state);
    return state;
  };
  const int one = nfa->Add();  // a whole part of one digit
  nfa->Edge(from, '0', '9', one);
  const int first = nfa->Add();
  nfa->Edge(from, '1', '9', first);
  const int many = digits(first);
  for (const int whole : {one, many}) {
    nfa->Empty(whole, to);
    const int point = nfa->Add();
    nfa->Edge(whole, '.', point);
    const int fraction = digits(point);
    nfa->Empty(fraction, to);
    const int exponent = nfa->Add();
    const int positive = nfa->Add();
    const int negative = nfa->Add();
    for (const int mantissa : {whole, fraction}) {
      nfa->Edge(mantissa, 'e', exponent);
      nfa->Edge(mantissa, 'E', exponent);
    }
    nfa->Empty(exponent, positive);
    nfa->Edge(exponent, '+', positive);
    nfa->Edge(exponent, '-', negative);
    for (const int sign : {positive, negative}) {
      const int last = nfa->Add();
      const int before_last = nfa->Add();
      nfa->Edge(sign, '0', '9', last);
      nfa->Edge(sign, '0', '9', before_last);
      nfa->Edge(before_last, '0', '9', last);
      nfa->Empty(last, to);
      if (whole != one) continue;
      const int hundreds = nfa->Add();
      nfa->Edge(sign, '1', '2', hundreds);
      nfa->Edge(hundreds, '0', '9', before_last);
      const int last_hundred = nfa->Add();
      nfa->Edge(sign, '3', last_hundred);
      const int last_ten = nfa->Add();
      nfa->Edge(last_hundred, '0', last_ten);
      nfa->Edge(last_ten, '0', '7', last);
    }
  }
}

}  // namespace

std::optional<Decimal> Decimal::Parse(std::string_view text) {
  Decimal decimal;
  if (text.starts_with('-')) {
    decimal.negative = true;
    text.remove_prefix(1);
  }
  int exponent = 0;
  const size_t e = text.find_first_of("eE");
  if (e != std::string_view::npos) {
    exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
    text = text.substr(0, e);
  }
  if (std::abs(exponent) > kMostExponent) return std::nullopt;
  const size_t point = text.find('.');
  std::string whole(text.substr(0, point));
  std::string fraction(point == std::string_view::npos ? "" : text.substr(point + 1));
  if (whole.empty() || (whole + fraction).find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  for (; exponent > 0; --exponent) {
    whole += fraction.empty() ? '0' : fraction[0];
    if (!fraction.empty()) fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    fraction.insert(fraction.begin(), whole.empty() ? '0' : whole.back());
    if (!whole.empty()) whole.pop_back();
  }
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  fraction.resize(fraction.find_last_not_of('0') + 1);
  decimal.whole = whole.empty() ? "0" : whole;
  decimal.fraction = fraction;
  if (decimal.is_zero()) decimal.negative = false;
  return decimal;
}

int Decimal::Compare(const Decimal& other) const {
  if (negative != other.negative) return negative ? -1 : 1;
  const int magnitudes = CompareMagnitudes(*this, other);
  return negative ? -magnitudes : magnitudes;
}

std::string Decimal::ToText() const {
  return (negative ? "-" : "") + whole + (fraction.empty() ? "" : ".") + fraction;
}

std::optional<DecimalStep> DecimalStep::Least(int64_t units, size_t places) {
  for (; places > 0 && units % 10 == 0; --places) units /= 10;
  if (units == 0 || units > kMostUnits) return std::nullopt;
  return DecimalStep(units, places);
}

std::optional<DecimalStep> DecimalStep::Of(const Decimal& value) {
  const std::string digits = value.whole + value.fraction;
  const size_t zeros = std::min(digits.find_first_not_of('0'), digits.size());
  const std::string units = digits.substr(zeros);
  if (value.negative || units.empty() || units.size() > std::to_string(kMostUnits).size() ||
      value.fraction.size() > kMostPlaces) {
    return std::nullopt;
  }
  return Least(std::stoll(units), value.fraction.size());
}

std::optional<DecimalStep> DecimalStep::And(const DecimalStep& other) const {
  const size_t places = std::max(places_, other.places_);
  const auto in_places = [&](const DecimalStep& step) {
    int64_t units = step.units_;
    for (size_t i = step.places_; i < places; ++i) units *= 10;
    return units;
  };
  const int64_t a = in_places(*this);
  const int64_t b = in_places(other);
  // The least of two numbers with common places has no more units than these in the end.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const int64_t factor = b / std::gcd(a, b);
  return a > kMost / factor ? std::nullopt : Least(a * factor, places);
}

Dfa DecimalStep::Multiples() const {
  const auto n = static_cast<int>(units_);
  const int places = static_cast<int>(places_);
  // State 0 is the start, 1 is behind a sign; then for each remainder the digits so far: without a
  // point, behind the point, and behind each place.
  const auto state_of = [&](int behind, int64_t remainder) {
    return 2 + behind * n + static_cast<int>(remainder);
  };
  Dfa dfa;
  dfa.states.resize(2 + static_cast<size_t>(n) * (places == 0 ? 1 : places_ + 2));
  const auto add_digits = [&](int from, int64_t remainder, int behind) {
    for (Symbol d = 0; d < 10; ++d) {
      dfa.states[static_cast<size_t>(from)].edges.push_back(
          {'0' + d, '0' + d, state_of(behind, (remainder * 10 + d) % n)});
    }
  };
  dfa.states[0].edges.push_back({'-', '-', 1});
  add_digits(0, 0, 0);
  add_digits(1, 0, 0);
  for (int behind = 0; behind < (places == 0 ? 1 : places + 2); ++behind) {
    const int digits = std::max(0, behind - 1);  // of the fraction
    for (int64_t remainder = 0; remainder < n; ++remainder) {
      const int from = state_of(behind, remainder);
      Dfa::State& state = dfa.states[static_cast<size_t>(from)];
      if (behind == 0 && places > 0) state.edges.push_back({'.', '.', state_of(1, remainder)});
      if (behind == 0 || digits < places) add_digits(from, remainder, behind == 0 ? 0 : behind + 1);
      int64_t whole = remainder;
      for (int i = digits; i < places; ++i) whole = whole * 10 % n;
      state.accepts = behind != 1 && whole == 0;
    }
  }
  return dfa;
}

std::string DecimalStep::Key() const {
  return std::to_string(units_) + "e-" + std::to_string(places_);
}

void DecimalRange::AtLeast(const Decimal& bound, bool open) {
  const int order = least_ ? bound.Compare(least_->value) : 1;
  if (order > 0 || (order == 0 && open)) least_ = Bound{bound, open};
}

void DecimalRange::AtMost(const Decimal& bound, bool open) {
  const int order = most_ ? bound.Compare(most_->value) : -1;
  if (order < 0 || (order == 0 && open)) most_ = Bound{bound, open};
}

std::string DecimalRange::Key() const {
  std::string key;
  for (const auto& bound : {least_, most_}) {
    key += bound ? (bound->open ? "(" : "[") + bound->value.ToText() : "";
    key += ',';
  }
  return key;
}

std::optional<Dfa> DecimalRange::Automaton(bool integers,
                                           const std::optional<DecimalStep>& multiple_of) const {
  Nfa nfa;
  const int end = nfa.Add();
  nfa.Accept(end);
  const int minus = nfa.Text(nfa.start(), "-");
  if (integers || least_ || most_) {
    AddInRange(integers, minus, end, &nfa);
  } else {
    AddAnyNumber(&nfa, nfa.start(), end);
    AddAnyNumber(&nfa, minus, end);
  }
  std::optional<Dfa> dfa = Determinise(nfa);
  if (!dfa || !multiple_of) return dfa;
  return Pair(*dfa, multiple_of->Multiples(), Pairing::kBoth);
}

void DecimalRange::AddInRange(bool integers, int minus, int end, Nfa* nfa) const {
  const auto add = [&](int from, const Bound& least, const Bound* most) {
    const int order = most == nullptr ? -1 : CompareMagnitudes(least.value, most->value);
    if (order > 0 || (order == 0 && (least.open || most->open))) return;
    Magnitudes(least, most, integers, nfa, end).AddFrom(from);
  };
  // Zero of integers has no sign.
  const Bound zero = {*Decimal::Parse("0"), false};
  const Bound below_zero = {*Decimal::Parse(integers ? "1" : "0"), false};
  const bool least_negative = least_ && least_->value.negative;
  const bool most_negative = most_ && most_->value.negative;
  if (!most_negative) {
    add(nfa->start(), least_ && !least_negative ? *least_ : zero, most_ ? &*most_ : nullptr);
  }
  if (!least_ || least_negative) {
    // Magnitudes of numbers below 0: those bounds change places.
    const bool zero_excluded = most_ && most_->open && most_->value.is_zero();
    const Bound from_zero = {below_zero.value, zero_excluded && !integers};
    add(minus, most_negative ? *most_ : from_zero, least_ ? &*least_ : nullptr);
  }
}

}  // namespace tessera::models
