// SPDX-License-Identifier: Apache-2.0
// The parser behind ParseJson (json_text.h) and ParseOrderedJson (json_ordered.h).
//
// nlohmann's own parser refuses NaN and numbers beyond a double, rounds integers beyond 64 bits,
// and looks for each key of an ordered object among all before it.
#ifndef TESSERA_BASE_JSON_PARSER_H_
#define TESSERA_BASE_JSON_PARSER_H_

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "nlohmann/json.hpp"

namespace tessera {

// Python converts no integers of more digits from text.
inline constexpr size_t kMaxIntegerDigits = 4300;

template <typename Json>
class JsonParser {
 public:
  JsonParser(std::string_view text, const JsonRules& rules)
      : text_(text), reader_(text, rules.comments), rules_(rules) {}

  StatusOr<Json> Parse(std::string_view source) {
    Json value;
    if (Value(&value, 0) && reader_.AtEnd()) return value;
    if (wrong_.empty()) wrong_ = Concat("not valid JSON at byte ", reader_.position() + 1);
    return InvalidArgument(source, ": ", wrong_);
  }

 private:
  using Members = typename Json::object_t;
  static constexpr bool kOrdered = std::is_same_v<Json, nlohmann::ordered_json>;

  bool Fail(std::string wrong) {
    wrong_ = std::move(wrong);
    return false;
  }

  bool Value(Json* value, int depth) {
    if (++values_ > rules_.max_values) {
      return Fail(Concat("JSON of more than ", rules_.max_values, " values"));
    }
    switch (reader_.Next()) {
      case '{':
      case '[':
        if (depth == kMaxJsonDepth) {
          return Fail(Concat("JSON nested deeper than ", kMaxJsonDepth, " levels at byte ",
                             reader_.position()));
        }
        return reader_.Take('{') ? Object(value, depth + 1) : Array(value, depth + 1);
      case '"':
        *value = std::string();
        return reader_.ReadString(&value->template get_ref<std::string&>());
      case 't':
        *value = true;
        return reader_.TakeWord("true");
      case 'f':
        *value = false;
        return reader_.TakeWord("false");
      case 'n':
        return reader_.TakeWord("null");
      case 'N':
        *value = std::numeric_limits<double>::quiet_NaN();
        return !rules_.strict && reader_.TakeWord("NaN");
      case 'I':
        *value = std::numeric_limits<double>::infinity();
        return !rules_.strict && reader_.TakeWord("Infinity");
      default:
        return Number(value);
    }
  }

  bool Array(Json* value, int depth) {
    *value = Json::array();
    auto& items = value->template get_ref<typename Json::array_t&>();
    reader_.Take('[');
    if (reader_.Take(']')) return true;
    do {
      if (!Value(&items.emplace_back(), depth)) return false;
    } while (reader_.Take(','));
    return reader_.Take(']');
  }

  bool Object(Json* value, int depth) {
    *value = Json::object();
    auto& members = value->template get_ref<Members&>();
    if (reader_.Take('}')) return true;
    std::vector<size_t> places;  // of the keys, where they must differ
    do {
      std::string key;
      if (rules_.unique_keys) {
        reader_.Next();
        places.push_back(reader_.position());
      }
      if (!reader_.ReadString(&key) || !reader_.Take(':')) return false;
      Json item;
      if (!Value(&item, depth)) {
        if (!twice_.empty()) Twice(key + "." + twice_, nullptr);
        return false;
      }
      if constexpr (kOrdered) {  // not through its own functions, which look among all members
        static_cast<typename Members::Container&>(members).emplace_back(std::move(key),
                                                                        std::move(item));
      } else {
        const auto [at, is_new] = members.insert_or_assign(std::move(key), std::move(item));
        if (!is_new && rules_.unique_keys) return Twice(at->first, &places);
      }
    } while (reader_.Take(','));
    if (!reader_.Take('}')) return false;
    if constexpr (kOrdered) return JoinEqualKeys(&members, &places);
    return true;
  }

  // A member of the object whose keys are at `places`; nullptr: of one within it, which has said
  // where.
  bool Twice(std::string key, const std::vector<size_t>* places) {
    std::vector<size_t> of_key;
    for (const size_t place : places == nullptr ? std::vector<size_t>() : *places) {
      std::string other;
      if (JsonReader(text_.substr(place), false).ReadString(&other) && other == key) {
        of_key.push_back(place);
      }
    }
    if (of_key.size() > 1) twice_where_ = Concat(Line(of_key[0]), " and ", Line(of_key[1]));
    twice_ = std::move(key);
    return Fail(Concat("'", twice_, "' is given twice, at ", twice_where_, "; keep one of them"));
  }
  // "line 3, column 5".
  std::string Line(size_t place) const {
    const std::string_view before = text_.substr(0, place);
    return Concat("line ", 1 + std::count(before.begin(), before.end(), '\n'), ", column ",
                  place - (before.rfind('\n') + 1) + 1);
  }

  // The last value of a key, where the first stood: as in a Python dict.
  bool JoinEqualKeys(Members* members, const std::vector<size_t>* places) {
    const auto key = [&](size_t i) -> const std::string& { return members->begin()[i].first; };
    std::vector<uint32_t> order(members->size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const int sign = key(a).compare(key(b));
      return sign != 0 ? sign < 0 : a < b;
    });
    std::vector<bool> gone(order.size());
    bool any = false;
    for (size_t i = 0, end = 0; i < order.size(); i = end) {
      for (end = i + 1; end < order.size() && key(order[end]) == key(order[i]); ++end) {
        gone[order[end]] = any = true;
      }
      if (end == i + 1) continue;
      if (rules_.unique_keys) return Twice(key(order[i]), places);
      members->begin()[order[i]].second = std::move(members->begin()[order[end - 1]].second);
    }
    if (!any) return true;
    Members kept;
    for (size_t i = 0; i < order.size(); ++i) {
      if (gone[i]) continue;
      static_cast<typename Members::Container&>(kept).emplace_back(
          key(i), std::move(members->begin()[i].second));
    }
    *members = std::move(kept);
    return true;
  }

  bool Number(Json* value) {
    bool whole = false;
    const size_t begin = reader_.position();
    const std::string_view text = reader_.TakeNumber(&whole);
    if (text.empty()) {
      *value = -std::numeric_limits<double>::infinity();
      return !rules_.strict && reader_.position() == begin + 1 && reader_.Next() == 'I' &&
             reader_.TakeWord("Infinity");
    }
    const char* const end = text.data() + text.size();
    if (whole) {
      if (text.size() > kMaxIntegerDigits) {
        return Fail(Concat("an integer of more than ", kMaxIntegerDigits, " digits"));
      }
      int64_t integer = 0;
      uint64_t large = 0;
      if (text.front() == '-' && std::from_chars(text.data(), end, integer).ec == std::errc()) {
        *value = integer;
        return true;
      }
      if (text.front() != '-' && std::from_chars(text.data(), end, large).ec == std::errc()) {
        *value = large;
        return true;
      }
      if (kOrdered && !rules_.strict) {
        *value = Json::binary({text.begin(), text.end()});
        return true;
      }
    }
    double real = 0;
    if (std::from_chars(text.data(), end, real).ec != std::errc()) {
      real = std::strtod(std::string(text).c_str(), nullptr);  // 0, or infinite
    }
    *value = real;
    return !rules_.strict || std::isfinite(real);
  }

  const std::string_view text_;
  JsonReader reader_;
  const JsonRules& rules_;
  size_t values_ = 0;
  std::string wrong_;
  std::string twice_;
  std::string twice_where_;
};

// `text` as a tree of this kind of value, by `rules`; `source` begins the message of a failure.
template <typename Json>
StatusOr<Json> ParseJsonAs(std::string_view text, std::string_view source, const JsonRules& rules) {
  const size_t mark = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  text.remove_prefix(mark);
  if (const size_t bad = FindInvalidUtf8(text); bad != kNoInvalidUtf8) {
    return InvalidArgument(source, ": not valid JSON at byte ", bad + 1, " (not UTF-8)");
  }
  return JsonParser<Json>(text, rules).Parse(source);
}

}  // namespace tessera

#endif  // TESSERA_BASE_JSON_PARSER_H_
