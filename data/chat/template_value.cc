// SPDX-License-Identifier: Apache-2.0
#include "data/chat/template_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>

#include "base/json_ordered.h"
#include "base/status.h"
#include "base/unicode_classes.h"
#include "base/utf8.h"
#include "nlohmann/json.hpp"

namespace tessera::data::chat {
namespace {

void CheckExtent(int depth, size_t weight) {
  if (depth > kMaxValueDepth) throw TemplateFailure{"values are nested too deeply"};
  if (weight > kMaxValueWeight) throw TemplateFailure{"a value is too large"};
}

Value SequenceOf(Value::List items, Sequence::Form form) {
  int depth = 1;
  size_t weight = 1;
  for (const Value& item : items) {
    depth = std::max(depth, item.depth() + 1);
    weight += item.weight();
  }
  CheckExtent(depth, weight);
  return Value::Of(Value::Any(std::make_shared<const Sequence>(
      Sequence{.items = std::move(items), .form = form, .depth = depth, .weight = weight})));
}

// digits[0].digits[1]digits[2]... times 10^exponent
struct Decimal {
  std::string digits = {};
  int exponent = 0;
};

Decimal NearestDecimal(long double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.*Le", digits - 1, value);
  const char* const e = std::strchr(text, 'e');
  Decimal decimal = {.exponent = std::atoi(e + 1)};
  for (const char* c = text; c < e; ++c) {
    // All but the decimal point, which depends on the locale.
    if (*c >= '0' && *c <= '9') decimal.digits += *c;
  }
  return decimal;
}

bool ReadsAs(const Decimal& decimal, double value) {
  const auto scale = std::ssize(decimal.digits) - 1;
  const std::string text = Concat(decimal.digits, "e", decimal.exponent - scale);
  double read = 0;
  std::from_chars(text.data(), text.data() + text.size(), read);
  return read == value;
}

// The shortest decimal that reads back as `value`, which is above 0. std::to_chars finds it too,
// but its tables would add 130 kB to the C library.
Decimal ShortestDecimal(double value) {
  Decimal shortest;
  // 17 digits always suffice.
  for (int least = 1, most = 17; least <= most;) {
    const int digits = (least + most) / 2;
    bool found = false;
    // The double below a power of two is nearer to it than the one above. So the nearest decimal
    // may be below and read back as another number, although one above reads back as `value`.
    for (const long double shift : {0.0L, 0x1p-55L}) {
      Decimal decimal = NearestDecimal(value * (1 + shift), digits);
      found = ReadsAs(decimal, value);
      if (!found) continue;
      shortest = std::move(decimal);
      break;
    }
    (found ? most : least) = found ? digits - 1 : digits + 1;
  }
  return shortest;
}

// As repr() of a float, and as json.dumps writes it: the shortest digits that read back as it.
std::string FloatText(double value, const char* nan, const char* infinity) {
  if (std::isnan(value)) return nan;
  const std::string sign = std::signbit(value) ? "-" : "";
  if (std::isinf(value)) return sign + infinity;
  if (value == 0) return sign + "0.0";
  auto [digits, exponent] = ShortestDecimal(std::abs(value));
  if (exponent < -4 || exponent >= 16) {
    if (digits.size() > 1) digits.insert(1, 1, '.');
    const char* const power = exponent < 0 ? "e-" : "e+";
    const int size = std::abs(exponent);
    return Concat(sign, digits, power, size < 10 ? "0" : "", size);
  }
  if (exponent < 0) {
    digits.insert(0, static_cast<size_t>(-exponent), '0');
    exponent = 0;
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) digits.resize(whole + 1, '0');
  return sign + digits.insert(whole, 1, '.');
}

// Python's str.isprintable, but for code points that are not assigned.
bool IsPrintable(char32_t c) {
  if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD) return false;
  if (c < 0x80) return true;
  if (UnicodeClasses::Get().Of(c) == CharClass::kSpace) return false;
  return !((c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) ||
           (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFB) ||
           c == 0x61C || c == 0x180E || (c >= 0xE000 && c <= 0xF8FF) || c >= 0xE0000);
}

std::string StringRepr(const std::string& text) {
  const char quote =
      text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  char code[16];
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    const auto length = static_cast<size_t>(c.length);
    if (c.code_point == static_cast<char32_t>(quote) || c.code_point == '\\') {
      out += '\\';
      out += text[i];
    } else if (c.code_point == '\n' || c.code_point == '\r' || c.code_point == '\t') {
      out += c.code_point == '\n' ? "\\n" : c.code_point == '\r' ? "\\r" : "\\t";
    } else if (!c.valid || !IsPrintable(c.code_point)) {
      const auto number = static_cast<unsigned>(c.code_point);
      std::snprintf(code, sizeof(code),
                    number < 0x100     ? "\\x%02x"
                    : number < 0x10000 ? "\\u%04x"
                                       : "\\U%08x",
                    number);
      out += code;
    } else {
      out.append(text, i, length);
    }
    i += length;
  }
  return out + quote;
}

std::string JsonString(const std::string& text, bool ensure_ascii) {
  std::string out = "\"";
  char code[16];
  const auto escape = [&](unsigned unit) {
    std::snprintf(code, sizeof(code), "\\u%04x", unit);
    out += code;
  };
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    const auto length = static_cast<size_t>(c.length);
    const char32_t point = c.valid ? c.code_point : kReplacementCharacter;
    const size_t special = point < 0x80 && point != 0
                               ? std::string_view("\"\\\n\r\t\b\f").find(static_cast<char>(point))
                               : std::string_view::npos;
    if (special != std::string_view::npos) {
      out += '\\';
      out += "\"\\nrtbf"[special];
    } else if (point < 0x20) {
      escape(static_cast<unsigned>(point));
    } else if (ensure_ascii && point >= 0x10000) {
      escape(0xD800 + static_cast<unsigned>((point - 0x10000) >> 10));
      escape(0xDC00 + static_cast<unsigned>((point - 0x10000) & 0x3FF));
    } else if (ensure_ascii && point >= 0x7F) {
      point == 0x7F ? void(out += '\x7F') : escape(static_cast<unsigned>(point));
    } else {
      AppendUtf8(point, &out);
    }
    i += length;
  }
  return out + '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void Write(const Value& value, int level) {
    if (value.Is<None>()) {
      out_ += "null";
    } else if (const auto* flag = value.As<bool>()) {
      out_ += *flag ? "true" : "false";
    } else if (value.Is<int64_t>() || value.Is<BigInteger>()) {
      out_ += Repr(value);
    } else if (const auto* number = value.As<double>()) {
      out_ += FloatText(*number, "NaN", "Infinity");
    } else if (const std::string* text = value.AsString()) {
      out_ += JsonString(*text, style_.ensure_ascii);
    } else if (const Mapping* mapping = value.AsMapping()) {
      WriteMapping(*mapping, level);
    } else if (const Sequence* sequence = value.AsSequence();
               sequence != nullptr && (sequence->form == Sequence::Form::kList ||
                                       sequence->form == Sequence::Form::kTuple)) {
      Open('[', sequence->items.size());
      for (size_t i = 0; i < sequence->items.size(); ++i) {
        Begin(i, level + 1);
        Write(sequence->items[i], level + 1);
      }
      Close(']', sequence->items.size(), level);
    } else {
      throw TemplateFailure{
          Concat("tojson: object of type ", TypeName(value), " is not JSON serializable")};
    }
  }
  std::string Take() { return std::move(out_); }

 private:
  static std::string Key(const Value& key) {
    if (const std::string* text = key.AsString()) return *text;
    if (key.Is<None>()) return "null";
    if (const auto* flag = key.As<bool>()) return *flag ? "true" : "false";
    if (key.Is<int64_t>() || key.Is<BigInteger>()) return Text(key);
    if (const auto* number = key.As<double>()) return FloatText(*number, "NaN", "Infinity");
    throw TemplateFailure{
        Concat("tojson: keys must be str, int, float, bool or None, not ", TypeName(key))};
  }
  void WriteMapping(const Mapping& mapping, int level) {
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : mapping.items) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [](const auto* a, const auto* b) {
        return Compare(a->first, b->first, "<") < 0;
      });
    }
    Open('{', items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      Begin(i, level + 1);
      out_ += JsonString(Key(items[i]->first), style_.ensure_ascii) + style_.key_separator;
      Write(items[i]->second, level + 1);
    }
    Close('}', items.size(), level);
  }
  void NewLine(int level) {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += *style_.indent;
  }
  void Open(char bracket, size_t) { out_ += bracket; }
  void Begin(size_t i, int level) {
    if (i > 0) out_ += style_.item_separator;
    NewLine(level);
  }
  void Close(char bracket, size_t size, int level) {
    if (size > 0) NewLine(level);
    out_ += bracket;
  }

  const JsonStyle& style_;
  std::string out_;
};

int Sign(bool less, bool greater) { return less ? -1 : greater ? 1 : 0; }

// The order of two numbers of which one is beyond 64 bits; nullopt: they are no such numbers.
std::optional<int> BigSign(const Value& a, const Value& b) {
  const auto* const x = a.As<BigInteger>();
  const auto* const y = b.As<BigInteger>();
  if (x == nullptr && y == nullptr) return std::nullopt;
  if (x == nullptr) {
    const std::optional<int> sign = BigSign(b, a);
    return sign ? std::optional(-*sign) : std::nullopt;
  }
  const bool negative = x->digits->starts_with('-');
  if (y != nullptr) {
    if (negative != y->digits->starts_with('-')) return negative ? -1 : 1;
    const auto by_size = [](const std::string& digits) { return std::pair(digits.size(), digits); };
    const auto p = by_size(*x->digits), q = by_size(*y->digits);
    return negative ? Sign(q<p, q> p) : Sign(p<q, p> q);
  }
  if (b.AsInteger()) return negative ? -1 : 1;
  if (!b.AsNumber()) return std::nullopt;
  const double number = std::strtod(x->digits->c_str(), nullptr);
  return Sign(number<*b.AsNumber(), number> * b.AsNumber());
}

}  // namespace

Value Value::Missing(std::string why) {
  return Value(Any(Undefined{std::make_shared<const std::string>(std::move(why))}));
}
Value Value::Of(std::string text) {
  return Value(Any(std::make_shared<const std::string>(std::move(text))));
}
Value Value::ListOf(List items) { return SequenceOf(std::move(items), Sequence::Form::kList); }
Value Value::TupleOf(List items) { return SequenceOf(std::move(items), Sequence::Form::kTuple); }
Value Value::RangeOf(List items) { return SequenceOf(std::move(items), Sequence::Form::kRange); }
Value Value::ViewOf(List items) { return SequenceOf(std::move(items), Sequence::Form::kView); }
Value Value::GeneratorOf(List items) {
  return SequenceOf(std::move(items), Sequence::Form::kGenerator);
}
Value Value::MappingOf(Items items) {
  int depth = 1;
  size_t weight = 1;
  for (const auto& [key, value] : items) {
    depth = std::max({depth, key.depth() + 1, value.depth() + 1});
    weight += key.weight() + value.weight();
  }
  CheckExtent(depth, weight);
  return Value(Any(std::make_shared<const Mapping>(
      Mapping{.items = std::move(items), .depth = depth, .weight = weight})));
}

namespace {
Value BigIntegerOf(std::string digits) {
  return Value::Of(Value::Any(BigInteger{std::make_shared<const std::string>(std::move(digits))}));
}
}  // namespace

Value Value::FromJson(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Of(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
      return Of(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(INT64_MAX)) return BigIntegerOf(std::to_string(number));
      return Of(static_cast<int64_t>(number));
    }
    case nlohmann::ordered_json::value_t::number_float:
      return Of(json.get<double>());
    case nlohmann::ordered_json::value_t::string:
      return Of(json.get_ref<const std::string&>());
    case nlohmann::ordered_json::value_t::array: {
      List items;
      for (const auto& item : json) items.push_back(FromJson(item));
      return ListOf(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      Items items;
      for (const auto& [key, item] : json.items()) items.emplace_back(Of(key), FromJson(item));
      return MappingOf(std::move(items));
    }
    case nlohmann::ordered_json::value_t::binary:
      return BigIntegerOf(std::string(tessera::BigInteger(json)));
    default:
      return Value();
  }
}

const std::string* Value::AsString() const {
  const auto* text = As<std::shared_ptr<const std::string>>();
  return text == nullptr ? nullptr : text->get();
}
const Sequence* Value::AsSequence() const {
  const auto* sequence = As<std::shared_ptr<const Sequence>>();
  return sequence == nullptr ? nullptr : sequence->get();
}
const Mapping* Value::AsMapping() const {
  const auto* mapping = As<std::shared_ptr<const Mapping>>();
  return mapping == nullptr ? nullptr : mapping->get();
}
std::optional<int64_t> Value::AsInteger() const {
  if (const auto* flag = As<bool>()) return *flag ? 1 : 0;
  if (const auto* number = As<int64_t>()) return *number;
  return std::nullopt;
}
std::optional<double> Value::AsNumber() const {
  if (const auto* number = As<double>()) return *number;
  if (const auto integer = AsInteger()) return static_cast<double>(*integer);
  return std::nullopt;
}
int Value::depth() const {
  if (const Sequence* sequence = AsSequence()) return sequence->depth;
  if (const Mapping* mapping = AsMapping()) return mapping->depth;
  if (const auto* loop = As<std::shared_ptr<const Loop>>()) return (*loop)->items->depth + 1;
  if (const auto* method = As<std::shared_ptr<const Method>>()) return (*method)->self.depth() + 1;
  return 0;
}

size_t Value::weight() const {
  if (const std::string* text = AsString()) return 1 + text->size() / 16;
  if (const auto* big = As<BigInteger>()) return 1 + big->digits->size() / 16;
  if (const Sequence* sequence = AsSequence()) return sequence->weight;
  if (const Mapping* mapping = AsMapping()) return mapping->weight;
  return 1;
}

const Value* Mapping::Find(const Value& key) const {
  for (const auto& [mine, value] : items) {
    if (Equal(mine, key)) return &value;
  }
  return nullptr;
}
const Value* Mapping::Find(std::string_view key) const {
  for (const auto& [mine, value] : items) {
    const std::string* text = mine.AsString();
    if (text != nullptr && *text == key) return &value;
  }
  return nullptr;
}

std::string TypeName(const Value& value) {
  if (value.IsUndefined()) return "Undefined";
  if (value.Is<None>()) return "NoneType";
  if (value.Is<bool>()) return "bool";
  if (value.Is<int64_t>() || value.Is<BigInteger>()) return "int";
  if (value.Is<double>()) return "float";
  if (value.AsString() != nullptr) return "str";
  if (value.AsMapping() != nullptr) return "dict";
  if (const Sequence* sequence = value.AsSequence()) {
    static constexpr const char* kNames[] = {"list", "tuple", "range", "dict view", "generator"};
    return kNames[static_cast<int>(sequence->form)];
  }
  if (value.Is<Namespace*>()) return "Namespace";
  if (value.Is<const Macro*>()) return "Macro";
  if (value.Is<std::shared_ptr<const Loop>>()) return "LoopContext";
  if (value.Is<std::shared_ptr<const Method>>()) return "method";
  return "function";
}

bool IsTrue(const Value& value) {
  if (value.IsUndefined() || value.Is<None>()) return false;
  if (const auto* flag = value.As<bool>()) return *flag;
  if (const auto number = value.AsNumber()) return *number != 0;
  if (const std::string* text = value.AsString()) return !text->empty();
  if (const Mapping* mapping = value.AsMapping()) return !mapping->items.empty();
  if (const Sequence* sequence = value.AsSequence()) {
    return !sequence->has_length() || !sequence->items.empty();
  }
  return true;
}

bool Equal(const Value& a, const Value& b) {
  if (a.IsUndefined() || b.IsUndefined()) return a.IsUndefined() && b.IsUndefined();
  if (a.Is<None>() || b.Is<None>()) return a.Is<None>() && b.Is<None>();
  if (a.AsInteger() && b.AsInteger()) return a.AsInteger() == b.AsInteger();
  if (a.Is<BigInteger>() || b.Is<BigInteger>()) {
    const std::optional<int> sign = BigSign(a, b);
    return sign && *sign == 0;
  }
  if (a.AsNumber() && b.AsNumber()) return *a.AsNumber() == *b.AsNumber();
  if (a.AsString() != nullptr && b.AsString() != nullptr) return *a.AsString() == *b.AsString();
  if (const Sequence* x = a.AsSequence(), *y = b.AsSequence(); x != nullptr && y != nullptr) {
    return x->form == y->form &&
           std::equal(x->items.begin(), x->items.end(), y->items.begin(), y->items.end(), Equal);
  }
  if (const Mapping* x = a.AsMapping(), *y = b.AsMapping(); x != nullptr && y != nullptr) {
    if (x->items.size() != y->items.size()) return false;
    std::unordered_map<std::string_view, const Value*> by_name;  // of many
    for (const auto& [key, value] : y->items) {
      if (y->items.size() > 16 && key.AsString()) by_name.emplace(*key.AsString(), &value);
    }
    return std::all_of(x->items.begin(), x->items.end(), [&](const auto& item) {
      const auto found =
          item.first.AsString() ? by_name.find(*item.first.AsString()) : by_name.end();
      const Value* const other = found != by_name.end() ? found->second : y->Find(item.first);
      return other != nullptr && Equal(item.second, *other);
    });
  }
  if (a.Is<Namespace*>() && b.Is<Namespace*>()) return *a.As<Namespace*>() == *b.As<Namespace*>();
  if (a.Is<const Macro*>() && b.Is<const Macro*>()) {
    return *a.As<const Macro*>() == *b.As<const Macro*>();
  }
  return false;
}

int Compare(const Value& a, const Value& b, const char* op) {
  if (a.AsInteger() && b.AsInteger()) {
    return Sign(*a.AsInteger() < *b.AsInteger(), *a.AsInteger() > *b.AsInteger());
  }
  if (const std::optional<int> sign = BigSign(a, b)) return *sign;
  if (a.AsNumber() && b.AsNumber()) {
    return Sign(*a.AsNumber() < *b.AsNumber(), *a.AsNumber() > *b.AsNumber());
  }
  if (a.AsString() != nullptr && b.AsString() != nullptr) {
    return a.AsString()->compare(*b.AsString());
  }
  const Sequence* const x = a.AsSequence();
  const Sequence* const y = b.AsSequence();
  if (x != nullptr && y != nullptr && x->form == y->form && x->has_elements()) {
    for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i) {
      if (!Equal(x->items[i], y->items[i])) return Compare(x->items[i], y->items[i], op);
    }
    return Sign(x->items.size() < y->items.size(), x->items.size() > y->items.size());
  }
  for (const Value* side : {&a, &b}) {
    if (const auto* missing = side->As<Undefined>()) throw TemplateFailure{*missing->why};
  }
  throw TemplateFailure{Concat("'", op, "' not supported between instances of '", TypeName(a),
                               "' and '", TypeName(b), "'")};
}

bool Contains(const Value& container, const Value& item) {
  if (container.IsUndefined()) return false;
  if (const std::string* text = container.AsString()) {
    const std::string* part = item.AsString();
    if (part == nullptr) {
      throw TemplateFailure{
          Concat("'in <string>' requires string as left operand, not ", TypeName(item))};
    }
    return text->find(*part) != std::string::npos;
  }
  if (const Mapping* mapping = container.AsMapping()) return mapping->Find(item) != nullptr;
  if (const Sequence* sequence = container.AsSequence()) {
    return std::any_of(sequence->items.begin(), sequence->items.end(),
                       [&](const Value& mine) { return Equal(mine, item); });
  }
  throw TemplateFailure{Concat("argument of type '", TypeName(container), "' is not iterable")};
}

std::string Text(const Value& value) {
  if (value.IsUndefined()) return "";
  if (const std::string* text = value.AsString()) return *text;
  return Repr(value);
}

std::string Repr(const Value& value) {
  if (value.IsUndefined()) return "Undefined";
  if (value.Is<None>()) return "None";
  if (const auto* flag = value.As<bool>()) return *flag ? "True" : "False";
  if (const auto* integer = value.As<int64_t>()) return std::to_string(*integer);
  if (const auto* big = value.As<BigInteger>()) return *big->digits;
  if (const auto* number = value.As<double>()) return FloatText(*number, "nan", "inf");
  if (const std::string* text = value.AsString()) return StringRepr(*text);
  std::string out;
  if (const Mapping* mapping = value.AsMapping()) {
    for (const auto& [key, item] : mapping->items) {
      out += Concat(out.empty() ? "" : ", ", Repr(key), ": ", Repr(item));
    }
    return "{" + out + "}";
  }
  const Sequence* const sequence = value.AsSequence();
  if (sequence == nullptr ||
      (sequence->form != Sequence::Form::kList && sequence->form != Sequence::Form::kTuple)) {
    throw TemplateFailure{Concat("a ", TypeName(value), " is no text")};
  }
  for (size_t i = 0; i < sequence->items.size(); ++i) {
    out += (i == 0 ? "" : ", ") + Repr(sequence->items[i]);
  }
  if (sequence->form == Sequence::Form::kList) return "[" + out + "]";
  return "(" + out + (sequence->items.size() == 1 ? ",)" : ")");
}

std::string Json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.Write(value, 0);
  return writer.Take();
}

std::vector<size_t> CharacterOffsets(std::string_view text) {
  std::vector<size_t> offsets;
  for (size_t i = 0; i < text.size(); i += static_cast<size_t>(DecodeUtf8(text, i).length)) {
    offsets.push_back(i);
  }
  offsets.push_back(text.size());
  return offsets;
}

Value::List Elements(const Value& value) {
  Value::List items;
  if (value.IsUndefined()) return items;
  if (const Sequence* sequence = value.AsSequence()) return sequence->items;
  if (const Mapping* mapping = value.AsMapping()) {
    for (const auto& [key, item] : mapping->items) items.push_back(key);
    return items;
  }
  if (const std::string* text = value.AsString()) {
    const std::vector<size_t> offsets = CharacterOffsets(*text);
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      items.push_back(Value::Of(text->substr(offsets[i], offsets[i + 1] - offsets[i])));
    }
    return items;
  }
  throw TemplateFailure{Concat("'", TypeName(value), "' object is not iterable")};
}

size_t Length(const Value& value) {
  if (value.IsUndefined()) return 0;
  if (const std::string* text = value.AsString()) return CharacterOffsets(*text).size() - 1;
  if (const Mapping* mapping = value.AsMapping()) return mapping->items.size();
  const Sequence* const sequence = value.AsSequence();
  if (sequence != nullptr && sequence->has_length()) return sequence->items.size();
  throw TemplateFailure{Concat("object of type '", TypeName(value), "' has no len()")};
}

}  // namespace tessera::data::chat
