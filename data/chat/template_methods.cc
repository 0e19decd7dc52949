// SPDX-License-Identifier: Apache-2.0
// Python's methods of texts, mappings and lists, as far as they change nothing.
#include <algorithm>
#include <array>
#include <map>

#include "base/python_text.h"
#include "base/status.h"
#include "base/unicode_classes.h"
#include "base/utf8.h"
#include "data/chat/template_evaluator.h"
#include "data/tokenizer/bert_normalizer.h"

namespace tessera::data::chat {
namespace {

using Words = std::initializer_list<std::string_view>;

constexpr std::string_view kTextMethods[] = {
    "capitalize", "casefold",   "count",        "endswith",     "find",       "format",
    "index",      "isalnum",    "isalpha",      "isdecimal",    "isdigit",    "islower",
    "isnumeric",  "isspace",    "isupper",      "join",         "ljust",      "lower",
    "lstrip",     "partition",  "removeprefix", "removesuffix", "replace",    "rfind",
    "rindex",     "rjust",      "rpartition",   "rsplit",       "rstrip",     "split",
    "splitlines", "startswith", "strip",        "swapcase",     "title",      "upper",
    "zfill",      "encode",     "center",       "expandtabs",   "format_map", "translate"};
constexpr std::string_view kMappingMethods[] = {"copy", "get",     "items", "keys",   "values",
                                                "pop",  "popitem", "clear", "update", "setdefault"};
constexpr std::string_view kListMethods[] = {"copy",   "count",   "index",  "append",
                                             "clear",  "extend",  "insert", "pop",
                                             "remove", "reverse", "sort"};
// They change what they are called on.
constexpr std::string_view kChanging[] = {"append",     "clear",   "extend", "insert",
                                          "pop",        "popitem", "remove", "reverse",
                                          "setdefault", "sort",    "update"};

template <size_t N>
bool IsAmong(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// The capital letters of those that AppendLower knows; of several the first.
const std::map<char32_t, char32_t>& Capitals() {
  static const auto* const capitals = [] {
    auto* map = new std::map<char32_t, char32_t>();
    for (char32_t c = 0x80; c < 0x1E944; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      std::string lower;
      AppendLower(c, &lower);
      const Utf8Char small = DecodeUtf8(lower, 0);
      if (small.code_point != c && static_cast<size_t>(small.length) == lower.size()) {
        map->emplace(small.code_point, c);
      }
    }
    return map;
  }();
  return *capitals;
}

void AppendUpper(char32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : static_cast<char>(c));
  } else if (c == 0xDF) {
    *out += "SS";
  } else {
    const auto found = Capitals().find(c);
    AppendUtf8(found == Capitals().end() ? c : found->second, out);
  }
}

// f(character, out) for every character; bytes that are none stay.
template <typename F>
std::string Mapped(std::string_view text, const F& f) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    if (c.valid) {
      f(c.code_point, &out);
    } else {
      out += text[i];
    }
    i += static_cast<size_t>(c.length);
  }
  return out;
}

bool IsUpper(char32_t c) {
  std::string lower;
  AppendLower(c, &lower);
  return DecodeUtf8(lower, 0).code_point != c;
}
bool IsLower(char32_t c) {
  std::string upper;
  AppendUpper(c, &upper);
  return DecodeUtf8(upper, 0).code_point != c;
}
bool IsLetter(char32_t c) { return UnicodeClasses::Get().Of(c) == CharClass::kLetter; }
bool IsNumber(char32_t c) { return UnicodeClasses::Get().Of(c) == CharClass::kNumber; }
bool IsDecimal(char32_t c) { return c >= '0' && c <= '9'; }

template <typename F>
bool AllOf(std::string_view text, const F& f) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    if (!f(c.code_point)) return false;
    i += static_cast<size_t>(c.length);
  }
  return !text.empty();
}

const std::string& TextArgument(const Value* value, const std::string& method) {
  if (value == nullptr || value->AsString() == nullptr) {
    throw TemplateFailure{
        Concat(method, " expects a str, not ", value == nullptr ? "nothing" : TypeName(*value))};
  }
  return *value->AsString();
}
int64_t IntegerArgument(const Value* value, int64_t otherwise, const std::string& method) {
  if (value == nullptr) return otherwise;
  const auto number = value->AsInteger();
  if (!number) throw TemplateFailure{Concat(method, " expects an int, not ", TypeName(*value))};
  return *number;
}

Value::List Split(std::string_view text, const std::string* separator, int64_t most) {
  Value::List parts;
  if (separator != nullptr) {
    if (separator->empty()) throw TemplateFailure{"empty separator"};
    size_t at = 0;
    for (size_t next = text.find(*separator); next != std::string_view::npos && most != 0;
         next = text.find(*separator, at), --most) {
      parts.push_back(Value::Of(text.substr(at, next - at)));
      at = next + separator->size();
    }
    parts.push_back(Value::Of(text.substr(at)));
    return parts;
  }
  for (std::string_view rest = StripLeft(text); !rest.empty(); rest = StripLeft(rest), --most) {
    size_t end = 0;
    while (end < rest.size()) {
      const Utf8Char c = DecodeUtf8(rest, end);
      if (IsPythonSpace(c.code_point)) break;
      end += static_cast<size_t>(c.length);
    }
    if (most == 0) {
      parts.push_back(Value::Of(StripRight(rest)));
      if (text.size() > 0) parts.back() = Value::Of(rest);
      break;
    }
    parts.push_back(Value::Of(rest.substr(0, end)));
    rest.remove_prefix(end);
  }
  return parts;
}

Value::List SplitFromRight(std::string_view text, const std::string* separator, int64_t most) {
  Value::List parts;
  if (separator == nullptr) {
    for (std::string_view rest = StripRight(text); !rest.empty(); rest = StripRight(rest), --most) {
      size_t begin = rest.size();
      while (begin > 0) {
        const size_t before = LastCharacter(rest, begin);
        if (IsPythonSpace(DecodeUtf8(rest, before).code_point)) break;
        begin = before;
      }
      if (most == 0) begin = 0;
      parts.push_back(Value::Of(rest.substr(begin)));
      rest = rest.substr(0, begin);
    }
  } else {
    if (separator->empty()) throw TemplateFailure{"empty separator"};
    std::string_view rest = text;
    for (size_t at = rest.rfind(*separator); at != std::string_view::npos && most != 0;
         at = rest.rfind(*separator), --most) {
      parts.push_back(Value::Of(rest.substr(at + separator->size())));
      rest = rest.substr(0, at);
    }
    parts.push_back(Value::Of(rest));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value::List Lines(std::string_view text, bool keeps_ends) {
  Value::List lines;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    size_t length = 0;
    for (; end < text.size(); end += static_cast<size_t>(DecodeUtf8(text, end).length)) {
      const Utf8Char c = DecodeUtf8(text, end);
      const char32_t p = c.code_point;
      if ((p >= 0x0A && p <= 0x0D) || (p >= 0x1C && p <= 0x1E) || p == 0x85 || p == 0x2028 ||
          p == 0x2029) {
        length = p == '\r' && end + 1 < text.size() && text[end + 1] == '\n'
                     ? 2
                     : static_cast<size_t>(c.length);
        break;
      }
    }
    lines.push_back(Value::Of(text.substr(at, end - at + (keeps_ends ? length : 0))));
    at = end + length;
  }
  return lines;
}

// str.startswith and str.endswith, which take a tuple too.
bool HasAffix(const std::string& text, const Value* affix, bool at_end, const std::string& method) {
  if (affix != nullptr && affix->AsSequence() != nullptr &&
      affix->AsSequence()->form == Sequence::Form::kTuple) {
    const auto& all = affix->AsSequence()->items;
    return std::any_of(all.begin(), all.end(),
                       [&](const Value& one) { return HasAffix(text, &one, at_end, method); });
  }
  const std::string& part = TextArgument(affix, method);
  return at_end ? text.ends_with(part) : text.starts_with(part);
}

// In characters; -1 where it is not there.
int64_t Find(const std::string& text, const std::string& part, bool from_right) {
  const size_t at = from_right ? text.rfind(part) : text.find(part);
  if (at == std::string::npos) return -1;
  return std::ssize(CharacterOffsets(std::string_view(text).substr(0, at))) - 1;
}

Value Partition(const std::string& text, const std::string& separator, bool from_right) {
  if (separator.empty()) throw TemplateFailure{"empty separator"};
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  if (at == std::string::npos) {
    const Value none = Value::Of("");
    const Value all = Value::Of(text);
    return Value::TupleOf(from_right ? Value::List{none, none, all} : Value::List{all, none, none});
  }
  return Value::TupleOf({Value::Of(text.substr(0, at)), Value::Of(separator),
                         Value::Of(text.substr(at + separator.size()))});
}

int64_t CountOf(const std::string& text, const std::string& part) {
  if (part.empty()) return std::ssize(CharacterOffsets(text));
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

std::string Padded(const std::string& text, const std::string& method, const Arguments& arguments,
                   Budget* budget) {
  const int64_t width = IntegerArgument(ArgumentOf(arguments, 0, ""), 0, method);
  const Value* const given = ArgumentOf(arguments, 1, "");
  const std::string fill = method == "zfill"  ? "0"
                           : given == nullptr ? " "
                                              : TextArgument(given, method);
  const int64_t missing = width - std::ssize(CharacterOffsets(text)) + 1;
  if (missing <= 0) return text;
  budget->Spend(static_cast<size_t>(missing));
  std::string padding;
  for (int64_t i = 0; i < missing; ++i) padding += fill;
  if (method == "ljust") return text + padding;
  const bool is_signed = method == "zfill" && !text.empty() && (text[0] == '-' || text[0] == '+');
  return is_signed ? text[0] + padding + text.substr(1) : padding + text;
}

std::string TitleCased(std::string_view text) {
  bool in_word = false;
  return Mapped(text, [&](char32_t c, std::string* out) {
    in_word ? AppendLower(c, out) : AppendUpper(c, out);
    in_word = IsLetter(c);
  });
}

Value CallTextMethod(const std::string& text, const std::string& name, const Arguments& arguments,
                     Budget* budget) {
  budget->SpendBytes(text.size());
  const Value* const first = ArgumentOf(arguments, 0, "");
  if (name == "upper") return Value::Of(UpperCase(text));
  if (name == "lower" || name == "casefold") return Value::Of(LowerCase(text));
  if (name == "title") return Value::Of(TitleCased(text));
  if (name == "capitalize") return Value::Of(Capitalized(text));
  if (name == "swapcase") {
    return Value::Of(Mapped(text, [](char32_t c, std::string* out) {
      IsUpper(c) ? AppendLower(c, out) : AppendUpper(c, out);
    }));
  }
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const bool plain = first == nullptr || first->Is<None>();
    return Value::Of(StrippedOf(text, plain ? nullptr : &TextArgument(first, name),
                                name != "rstrip", name != "lstrip"));
  }
  if (name == "split" || name == "rsplit") {
    const Value* const separator = ArgumentOf(arguments, 0, "sep");
    const bool plain = separator == nullptr || separator->Is<None>();
    const std::string* const at = plain ? nullptr : &TextArgument(separator, name);
    const int64_t most = IntegerArgument(ArgumentOf(arguments, 1, "maxsplit"), -1, name);
    return Value::ListOf(name == "split" ? Split(text, at, most) : SplitFromRight(text, at, most));
  }
  if (name == "splitlines") {
    const Value* const keeps = ArgumentOf(arguments, 0, "keepends");
    return Value::ListOf(Lines(text, keeps != nullptr && IsTrue(*keeps)));
  }
  if (name == "startswith") return Value::Of(HasAffix(text, first, false, name));
  if (name == "endswith") return Value::Of(HasAffix(text, first, true, name));
  if (name == "replace") {
    const int64_t count = IntegerArgument(ArgumentOf(arguments, 2, "count"), -1, name);
    return Value::Of(ReplacedText(text, TextArgument(first, name),
                                  TextArgument(ArgumentOf(arguments, 1, ""), name), count, budget));
  }
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex") {
    const int64_t at = Find(text, TextArgument(first, name), name[0] == 'r');
    if (at < 0 && name.ends_with("index")) throw TemplateFailure{"substring not found"};
    return Value::Of(at);
  }
  if (name == "count") return Value::Of(CountOf(text, TextArgument(first, name)));
  if (name == "join") {
    if (first == nullptr) throw TemplateFailure{"join expects a list"};
    std::string out;
    bool begun = false;
    for (const Value& part : Elements(*first)) {
      if (begun) out += text;
      begun = true;
      out += TextArgument(&part, name);
      budget->SpendBytes(text.size() + part.AsString()->size());
    }
    return Value::Of(std::move(out));
  }
  if (name == "partition" || name == "rpartition") {
    return Partition(text, TextArgument(first, name), name[0] == 'r');
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const std::string& part = TextArgument(first, name);
    if (name == "removeprefix" && text.starts_with(part))
      return Value::Of(text.substr(part.size()));
    if (name == "removesuffix" && text.ends_with(part)) {
      return Value::Of(text.substr(0, text.size() - part.size()));
    }
    return Value::Of(text);
  }
  if (name == "ljust" || name == "rjust" || name == "zfill") {
    return Value::Of(Padded(text, name, arguments, budget));
  }
  if (name == "isspace") return Value::Of(AllOf(text, IsPythonSpace));
  if (name == "isalpha") return Value::Of(AllOf(text, IsLetter));
  if (name == "isdigit" || name == "isdecimal") return Value::Of(AllOf(text, IsDecimal));
  if (name == "isnumeric") return Value::Of(AllOf(text, IsNumber));
  if (name == "isalnum") {
    return Value::Of(AllOf(text, [](char32_t c) { return IsLetter(c) || IsNumber(c); }));
  }
  if (name == "isupper" || name == "islower") {
    const bool upper = name == "isupper";
    const bool none_other =
        AllOf(text, [&](char32_t c) { return upper ? !IsLower(c) : !IsUpper(c); });
    const bool none = AllOf(text, [&](char32_t c) { return upper ? !IsUpper(c) : !IsLower(c); });
    return Value::Of(none_other && !none);
  }
  throw TemplateFailure{Concat("the method str.", name, " is not supported")};
}

Value CallMappingMethod(const Mapping& mapping, const Value& self, const std::string& name,
                        const Arguments& arguments, Budget* budget) {
  const Value* const wanted = ArgumentOf(arguments, 0, "");
  budget->Spend(mapping.items.size() * (wanted == nullptr ? 1 : wanted->weight()));
  if (name == "copy") return self;
  if (name == "get") {
    const Value* const key = ArgumentOf(arguments, 0, "");
    if (key == nullptr) throw TemplateFailure{"get expected at least 1 argument, got 0"};
    const Value* const found = mapping.Find(*key);
    const Value* const otherwise = ArgumentOf(arguments, 1, "");
    return found != nullptr ? *found : otherwise != nullptr ? *otherwise : Value();
  }
  Value::List list;
  for (const auto& [key, value] : mapping.items) {
    list.push_back(name == "keys" ? key : name == "values" ? value : Value::TupleOf({key, value}));
  }
  return Value::ViewOf(std::move(list));
}

Value CallListMethod(const Sequence& list, const Value& self, const std::string& name,
                     const Arguments& arguments, Budget* budget) {
  budget->Spend(list.weight);
  if (name == "copy") return self;
  const Value* const item = ArgumentOf(arguments, 0, "");
  if (item == nullptr) throw TemplateFailure{Concat(name, " expects an argument")};
  if (name == "count") {
    return Value::Of(int64_t{std::count_if(list.items.begin(), list.items.end(),
                                           [&](const Value& mine) { return Equal(mine, *item); })});
  }
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (Equal(list.items[i], *item)) return Value::Of(static_cast<int64_t>(i));
  }
  throw TemplateFailure{Concat(Repr(*item), " is not in list")};
}

}  // namespace

std::string UpperCase(std::string_view text) { return Mapped(text, AppendUpper); }
std::string LowerCase(std::string_view text) { return Mapped(text, AppendLower); }
std::string Capitalized(std::string_view text) {
  bool first = true;
  return Mapped(text, [&](char32_t c, std::string* out) {
    std::exchange(first, false) ? AppendUpper(c, out) : AppendLower(c, out);
  });
}

std::string ReplacedText(const std::string& text, const std::string& from, const std::string& to,
                         int64_t count, Budget* budget) {
  std::string out;
  if (from.empty()) {
    // Before every character, and at the end.
    const std::vector<size_t> offsets = CharacterOffsets(text);
    for (size_t i = 0; i < offsets.size(); ++i) {
      budget->SpendBytes(to.size() + 16);
      if (count != 0) out += to;
      count -= count > 0 ? 1 : 0;
      if (i + 1 < offsets.size()) out.append(text, offsets[i], offsets[i + 1] - offsets[i]);
    }
    return out;
  }
  size_t at = 0;
  for (size_t next = text.find(from); next != std::string::npos && count != 0;
       next = text.find(from, at), --count) {
    budget->SpendBytes(to.size() + 16);
    out.append(text, at, next - at);
    out += to;
    at = next + from.size();
  }
  return out.append(text, at);
}

std::string StrippedOf(std::string_view text, const std::string* characters, bool left,
                       bool right) {
  if (characters == nullptr) {
    if (left) text = StripLeft(text);
    return std::string(right ? StripRight(text) : text);
  }
  const auto stands_in = [&](size_t begin) {
    const auto length = static_cast<size_t>(DecodeUtf8(text, begin).length);
    return characters->find(text.substr(begin, length)) != std::string::npos ? length : 0;
  };
  while (left && !text.empty()) {
    const size_t length = stands_in(0);
    if (length == 0) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    const size_t last = LastCharacter(text, text.size());
    if (stands_in(last) == 0) break;
    text = text.substr(0, last);
  }
  return std::string(text);
}

const Value* ArgumentOf(const Arguments& arguments, size_t place, std::string_view name) {
  if (place < arguments.values.size()) return &arguments.values[place];
  for (const auto& [mine, value] : arguments.named) {
    if (mine == name) return &value;
  }
  return nullptr;
}

void CheckArguments(const std::string& what, const Arguments& arguments, size_t most,
                    std::initializer_list<std::string_view> names) {
  if (arguments.values.size() > most) {
    throw TemplateFailure{
        Concat(what, " takes ", most, " argument(s) at most, got ", arguments.values.size())};
  }
  for (const auto& [name, value] : arguments.named) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw TemplateFailure{Concat(what, " has no argument '", name, "'")};
    }
  }
}

bool HasMethod(const Value& self, std::string_view name) {
  if (self.AsString() != nullptr) return IsAmong(kTextMethods, name);
  if (self.AsMapping() != nullptr) return IsAmong(kMappingMethods, name);
  if (self.Is<std::shared_ptr<const Loop>>()) return name == "cycle";
  const Sequence* const sequence = self.AsSequence();
  if (sequence == nullptr) return false;
  if (sequence->form == Sequence::Form::kList) return IsAmong(kListMethods, name);
  return sequence->has_elements() && (name == "count" || name == "index");
}

Value CallMethod(const Value& self, const std::string& name, const Arguments& arguments,
                 Budget* budget) {
  if (self.AsString() == nullptr && IsAmong(kChanging, name)) {
    throw TemplateFailure{
        Concat("access to attribute '", name, "' of '", TypeName(self), "' object is unsafe")};
  }
  CheckArguments(name, arguments, 4, {"sep", "maxsplit", "keepends", "count"});
  if (const std::string* text = self.AsString()) {
    return CallTextMethod(*text, name, arguments, budget);
  }
  if (const Mapping* mapping = self.AsMapping()) {
    return CallMappingMethod(*mapping, self, name, arguments, budget);
  }
  return CallListMethod(*self.AsSequence(), self, name, arguments, budget);
}

}  // namespace tessera::data::chat
