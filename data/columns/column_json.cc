// SPDX-License-Identifier: Apache-2.0
#include "data/columns/column_json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "base/base64.h"
#include "base/error.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
void AppendInteger(T value, std::string* out) {
  char text[24];
  out->append(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

void AppendPadded(int64_t value, int digits, std::string* out) {
  char text[24];
  out->append(text, static_cast<size_t>(std::snprintf(text, sizeof(text), "%0*lld", digits,
                                                      static_cast<long long>(value))));
}

// ---- Floats ------------------------------------------------------------------------------------

float FloatOfHalf(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  const float sign = (half >> 15) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

// Whether the half nearest to `value` is `half`: it lies between the middles to its neighbours.
bool RoundsToHalf(double value, uint16_t half) {
  const double exact = FloatOfHalf(half);
  const auto middle = [&](int step) {
    const int magnitude = (half & 0x7FFF) + step;
    if (magnitude < 0) return -std::ldexp(1.0, -25);
    // Beyond the largest, the middle to what would come next.
    const double neighbour =
        magnitude == 0x7C00 ? 65536.0 : FloatOfHalf(static_cast<uint16_t>(magnitude));
    return (std::fabs(exact) + neighbour) / 2;
  };
  const double low = middle(-1);
  const double high = middle(1);
  const double size = std::fabs(value);
  const bool ties_are_mine = (half & 1) == 0;
  return ties_are_mine ? low <= size && size <= high : low < size && size < high;
}

// A finite number; the text has a point or an exponent.
template <typename T>
void AppendShortest(T value, std::string* out) {
  char text[40];
  const char* const end = std::to_chars(text, text + sizeof(text), value).ptr;
  const std::string_view view(text, static_cast<size_t>(end - text));
  out->append(view);
  if (view.find_first_of(".e") == std::string_view::npos) out->append(".0");
}

void AppendHalf(uint16_t half, std::string* out) {
  const float exact = FloatOfHalf(half);
  for (int digits = 0; digits < 5; ++digits) {
    char text[32];
    const char* const end =
        std::to_chars(text, text + sizeof(text), exact, std::chars_format::scientific, digits).ptr;
    double value = 0;
    std::from_chars(text, end, value);
    if (RoundsToHalf(value, half)) return AppendShortest(value, out);
  }
  AppendShortest(exact, out);
}

double FloatValue(const Column& column, int64_t row) {
  if (column.type->kind == TypeKind::kFloat64) return column.Value<double>(row);
  if (column.type->kind == TypeKind::kFloat32) return column.Value<float>(row);
  return FloatOfHalf(column.Value<uint16_t>(row));
}

void AppendFloat(const Column& column, int64_t row, std::string* out) {
  const double value = FloatValue(column, row);
  if (std::isnan(value)) {
    out->append("NaN");
  } else if (std::isinf(value)) {
    out->append(value < 0 ? "-Infinity" : "Infinity");
  } else if (column.type->kind == TypeKind::kFloat64) {
    AppendShortest(value, out);
  } else if (column.type->kind == TypeKind::kFloat32) {
    AppendShortest(column.Value<float>(row), out);
  } else {
    AppendHalf(column.Value<uint16_t>(row), out);
  }
}

// ---- What is a string in JSON ------------------------------------------------------------------

void AppendDecimal(const Column& column, int64_t row, std::string* out) {
  const std::string_view bytes = column.Bytes(row);
  std::array<uint32_t, 8> limbs{};
  const size_t count = bytes.size() / sizeof(uint32_t);
  std::memcpy(limbs.data(), bytes.data(), bytes.size());
  const bool negative = (limbs[count - 1] >> 31) != 0;
  uint64_t carry = 1;
  for (size_t i = 0; negative && i < count; ++i) {
    carry += static_cast<uint32_t>(~limbs[i]);
    limbs[i] = static_cast<uint32_t>(carry);
    carry >>= 32;
  }
  std::string digits;  // the last one first
  for (size_t used = count; used > 0;) {
    uint64_t rest = 0;
    for (size_t i = used; i-- > 0;) {
      rest = (rest << 32) | limbs[i];
      limbs[i] = static_cast<uint32_t>(rest / 10);
      rest %= 10;
    }
    digits.push_back(static_cast<char>('0' + rest));
    while (used > 0 && limbs[used - 1] == 0) --used;
  }
  const int scale = column.type->scale;
  if (scale > 0) {
    while (std::ssize(digits) <= scale) digits.push_back('0');
    digits.insert(static_cast<size_t>(scale), ".");
  } else if (digits != "0") {
    digits.insert(0, static_cast<size_t>(-scale), '0');
  }
  if (negative) out->push_back('-');
  out->append(digits.rbegin(), digits.rend());
}

// Days since 1970-01-01 in the proleptic Gregorian calendar: H. Hinnant, "chrono-Compatible
// Low-Level Date Algorithms", civil_from_days.
void AppendDate(int64_t days, std::string* out) {
  const int64_t shifted = days + 719468;
  const int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
  const int64_t day_of_era = shifted - era * 146097;
  const int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t march_month = (5 * day_of_year + 2) / 153;
  const int64_t day = day_of_year - (153 * march_month + 2) / 5 + 1;
  const int64_t month = march_month < 10 ? march_month + 3 : march_month - 9;
  const int64_t year = year_of_era + era * 400 + (month <= 2 ? 1 : 0);
  if (year > 9999) out->push_back('+');
  AppendPadded(year, year < 0 ? 5 : 4, out);
  out->push_back('-');
  AppendPadded(month, 2, out);
  out->push_back('-');
  AppendPadded(day, 2, out);
}

void AppendTime(int64_t units, TimeUnit unit, std::string* out) {
  const int64_t per_second = UnitsPerSecond(unit);
  const int64_t fraction = units % per_second;
  const int64_t seconds = units / per_second;
  AppendPadded(seconds / 3600, 2, out);
  out->push_back(':');
  AppendPadded(seconds / 60 % 60, 2, out);
  out->push_back(':');
  AppendPadded(seconds % 60, 2, out);
  if (fraction == 0) return;
  out->push_back('.');
  AppendPadded(fraction, 3 * static_cast<int>(unit), out);
}

void AppendTimestamp(const Column& column, int64_t row, std::string* out) {
  const auto units = column.Value<int64_t>(row);
  const int64_t per_day = 86400 * UnitsPerSecond(column.type->unit);
  const int64_t within = units % per_day + (units % per_day < 0 ? per_day : 0);
  AppendDate(units / per_day - (units % per_day < 0 ? 1 : 0), out);
  out->push_back('T');
  AppendTime(within, column.type->unit, out);
  if (!column.type->zone.empty()) out->push_back('Z');
}

void AppendUuid(std::string_view bytes, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out->push_back('-');
    out->push_back(kDigits[static_cast<uint8_t>(bytes[i]) >> 4]);
    out->push_back(kDigits[static_cast<uint8_t>(bytes[i]) & 15]);
  }
}

// The text of a value whose JSON is a string without need of an escape; false for other kinds.
bool AppendText(const Column& column, int64_t row, std::string* out) {
  switch (column.type->kind) {
    case TypeKind::kDecimal:
      AppendDecimal(column, row, out);
      return true;
    case TypeKind::kDate:
      AppendDate(column.Value<int32_t>(row), out);
      return true;
    case TypeKind::kTime:
      AppendTime(
          column.type->byte_width == 4 ? column.Value<int32_t>(row) : column.Value<int64_t>(row),
          column.type->unit, out);
      return true;
    case TypeKind::kTimestamp:
      AppendTimestamp(column, row, out);
      return true;
    case TypeKind::kUuid:
      AppendUuid(column.Bytes(row), out);
      return true;
    case TypeKind::kBinary:
      out->append(EncodeBase64(column.strings[row]));
      return true;
    case TypeKind::kFixedBinary:
      out->append(EncodeBase64(column.Bytes(row)));
      return true;
    default:
      return false;
  }
}

void AppendQuoted(std::string_view text, std::string* out) {
  out->push_back('"');
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<uint8_t>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out->append(text.substr(begin, i - begin));
    begin = i + 1;
    constexpr std::string_view kShort = "btn\0fr";  // of 8, 9, 10, 12, 13
    out->push_back('\\');
    if (c >= 0x20) {
      out->push_back(static_cast<char>(c));
    } else if (c >= 8 && c <= 13 && c != 11) {
      out->push_back(kShort[c - 8]);
    } else {
      out->append("u00");
      out->push_back(c < 16 ? '0' : '1');
      out->push_back("0123456789abcdef"[c & 15]);
    }
  }
  out->append(text.substr(begin));
  out->push_back('"');
}

// Calls `take` with the value of a column of integers (durations among them) or truth values.
template <typename F>
void WithInteger(const Column& column, int64_t row, F&& take) {
  switch (column.type->kind) {
    case TypeKind::kInt8:
      return take(column.Value<int8_t>(row));
    case TypeKind::kInt16:
      return take(column.Value<int16_t>(row));
    case TypeKind::kInt32:
      return take(column.Value<int32_t>(row));
    case TypeKind::kUInt8:
      return take(column.Value<uint8_t>(row));
    case TypeKind::kUInt16:
      return take(column.Value<uint16_t>(row));
    case TypeKind::kUInt32:
      return take(column.Value<uint32_t>(row));
    case TypeKind::kUInt64:
      return take(column.Value<uint64_t>(row));
    case TypeKind::kInt64:
    case TypeKind::kDuration:
      return take(column.Value<int64_t>(row));
    default:
      TESSERA_CHECK(false, "columns", TypeText(*column.type), " is no integer");
  }
}

void AppendElements(const Column& column, int64_t row, std::string* out) {
  const bool map = column.type->kind == TypeKind::kMap;
  out->push_back('[');
  for (int64_t e = column.offsets[row]; e < column.offsets[row + 1]; ++e) {
    if (e > column.offsets[row]) out->append(", ");
    if (map) out->push_back('[');
    AppendJson(column.children[0], e, out);
    if (!map) continue;
    out->append(", ");
    AppendJson(column.children[1], e, out);
    out->push_back(']');
  }
  out->push_back(']');
}

}  // namespace

void AppendJson(const Column& column, int64_t row, std::string* out) {
  if (column.IsNull(row)) {
    out->append("null");
    return;
  }
  switch (column.type->kind) {
    case TypeKind::kBool:
      out->append(column.Value<uint8_t>(row) != 0 ? "true" : "false");
      return;
    case TypeKind::kFloat16:
    case TypeKind::kFloat32:
    case TypeKind::kFloat64:
      return AppendFloat(column, row, out);
    case TypeKind::kString:
      return AppendQuoted(column.strings[row], out);
    case TypeKind::kList:
    case TypeKind::kMap:
      return AppendElements(column, row, out);
    case TypeKind::kStruct:
      out->push_back('{');
      for (size_t c = 0; c < column.children.size(); ++c) {
        if (c > 0) out->append(", ");
        AppendQuoted(column.type->children[c].name, out);
        out->append(": ");
        AppendJson(column.children[c], row, out);
      }
      out->push_back('}');
      return;
    default:
      break;
  }
  const size_t begin = out->size();
  out->push_back('"');
  if (AppendText(column, row, out)) {
    out->push_back('"');
    return;
  }
  out->resize(begin);
  WithInteger(column, row, [&](auto value) { AppendInteger(value, out); });
}

Json JsonOf(const Column& column, int64_t row) {
  if (column.IsNull(row)) return nullptr;
  switch (column.type->kind) {
    case TypeKind::kBool:
      return column.Value<uint8_t>(row) != 0;
    case TypeKind::kFloat16:
    case TypeKind::kFloat32:
    case TypeKind::kFloat64: {
      const double exact = FloatValue(column, row);
      if (!std::isfinite(exact)) return exact;
      // The double of the shortest text, so that it is written as that text again.
      std::string text;
      AppendFloat(column, row, &text);
      double value = 0;
      std::from_chars(text.data(), text.data() + text.size(), value);
      return value;
    }
    case TypeKind::kString:
      return std::string(column.strings[row]);
    case TypeKind::kList:
    case TypeKind::kMap: {
      Json array = Json::array();
      for (int64_t e = column.offsets[row]; e < column.offsets[row + 1]; ++e) {
        Json element = JsonOf(column.children[0], e);
        if (column.type->kind == TypeKind::kMap) {
          element = Json::array({std::move(element), JsonOf(column.children[1], e)});
        }
        array.push_back(std::move(element));
      }
      return array;
    }
    case TypeKind::kStruct: {
      Json object = Json::object();
      for (size_t c = 0; c < column.children.size(); ++c) {
        object[column.type->children[c].name] = JsonOf(column.children[c], row);
      }
      return object;
    }
    default:
      break;
  }
  std::string text;
  if (AppendText(column, row, &text)) return text;
  Json number;
  WithInteger(column, row, [&](auto value) { number = value; });
  return number;
}

}  // namespace tessera::data
