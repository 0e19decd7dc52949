// SPDX-License-Identifier: Apache-2.0
// Jinja's filters and tests.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/python_text.h"
#include "base/status.h"
#include "data/chat/template_evaluator.h"

namespace tessera::data::chat {
namespace {

bool Given(const Arguments& arguments, size_t place, std::string_view name) {
  const Value* const value = ArgumentOf(arguments, place, name);
  return value != nullptr && IsTrue(*value);
}

// int() and float() of a text; nullopt where it is none.
std::optional<int64_t> ParseInteger(std::string_view text) {
  text = Strip(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t number = 0;
  const auto end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && at == end ? std::optional(number) : std::nullopt;
}
std::optional<double> ParseFloat(std::string_view text) {
  text = Strip(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && at == end ? std::optional(number) : std::nullopt;
}

std::optional<int64_t> IntegerOf(const Value& value) {
  if (const auto integer = value.AsInteger()) return integer;
  std::optional<double> number = value.AsNumber();
  if (const std::string* text = value.AsString()) {
    if (const auto integer = ParseInteger(*text)) return integer;
    number = ParseFloat(*text);
  }
  if (!number || !(std::abs(*number) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(*number);
}

double Rounded(double value, int64_t precision, const std::string& method) {
  if (method == "common") {
    // The decimal number that the value really is, half to even, as Python rounds.
    if (precision >= 0 && precision < 300) {
      char text[700];
      const int size =
          std::snprintf(text, sizeof(text), "%.*f", static_cast<int>(precision), value);
      return ParseFloat(std::string_view(text, static_cast<size_t>(size))).value_or(value);
    }
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / scale) * scale;
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(value * scale) / scale;
  if (method == "floor") return std::floor(value * scale) / scale;
  throw TemplateFailure{"round: the method must be common, ceil or floor"};
}

// Lines behind the first get `width` blanks, empty ones none.
std::string Indented(const std::string& text, const std::string& indent, bool first, bool blank) {
  std::string out = first ? indent : "";
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (at > 0 && (blank || end > at)) out += indent;
    out.append(text, at, end - at);
    if (end < text.size()) out += '\n';
    at = end + 1;
  }
  return out;
}

// Jinja's: a word begins behind white space, a hyphen or an opening bracket.
std::string TitleOf(const std::string& text) {
  std::string out;
  size_t at = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const bool separates =
        i == text.size() || std::string_view("-({[< \t\n\r\f\v").find(text[i]) != std::string::npos;
    if (!separates) continue;
    out += Capitalized(std::string_view(text).substr(at, i - at));
    if (i < text.size()) out += text[i];
    at = i + 1;
  }
  return out;
}

// What is compared where texts are alike but for their case.
Value Folded(const Value& value) {
  return value.AsString() == nullptr ? value : Value::Of(LowerCase(*value.AsString()));
}

std::string JsonFilter(const Value& input, const Arguments& arguments) {
  JsonStyle style;
  style.ensure_ascii = Given(arguments, 0, "ensure_ascii");
  if (const Value* indent = ArgumentOf(arguments, 1, "indent");
      indent != nullptr && !indent->Is<None>()) {
    if (const auto width = indent->AsInteger()) {
      if (*width > 100) throw TemplateFailure{"tojson: the indent is too wide"};
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(0, *width)), ' ');
    } else {
      style.indent = Text(*indent);
      if (style.indent->size() > 100) throw TemplateFailure{"tojson: the indent is too wide"};
    }
    style.item_separator = ",";
  }
  if (const Value* separators = ArgumentOf(arguments, 2, "separators");
      separators != nullptr && !separators->Is<None>()) {
    const Value::List both = Elements(*separators);
    if (both.size() != 2) throw TemplateFailure{"tojson: separators are two texts"};
    style.item_separator = Text(both[0]);
    style.key_separator = Text(both[1]);
  }
  style.sort_keys = Given(arguments, 3, "sort_keys");
  return Json(input, style);
}

}  // namespace

// "a.b" of an object, or its element by number.
Value Evaluator::PathOf(const Value& object, const Value& path) {
  if (path.AsString() == nullptr) return ItemOf(object, path);
  Value value = object;
  std::string_view rest = *path.AsString();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    const auto index = ParseInteger(part);
    value = ItemOf(value, index && part.find_first_not_of("0123456789") == std::string::npos
                              ? Value::Of(*index)
                              : Value::Of(part));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

Value Evaluator::Filter(const std::string& name, const Value& input, Arguments arguments) {
  budget_.Spend(input.weight());
  const Value* const first = ArgumentOf(arguments, 0, "");
  if (name == "default" || name == "d") {
    const bool replaces = input.IsUndefined() || (Given(arguments, 1, "boolean") && !IsTrue(input));
    if (!replaces) return input;
    const Value* const otherwise = ArgumentOf(arguments, 0, "default_value");
    return otherwise == nullptr ? Value::Of("") : *otherwise;
  }
  if (name == "tojson") {
    CheckArguments(name, arguments, 4, {"ensure_ascii", "indent", "separators", "sort_keys"});
    std::string text = JsonFilter(input, arguments);
    budget_.SpendBytes(text.size());
    return Value::Of(std::move(text));
  }
  if (name == "trim") {
    const Value* const characters = ArgumentOf(arguments, 0, "chars");
    const bool plain = characters == nullptr || characters->Is<None>();
    const std::string set = plain ? "" : Text(*characters);
    return Value::Of(StrippedOf(Text(input), plain ? nullptr : &set, true, true));
  }
  if (name == "upper") return Value::Of(UpperCase(Text(input)));
  if (name == "lower") return Value::Of(LowerCase(Text(input)));
  if (name == "capitalize") return Value::Of(Capitalized(Text(input)));
  if (name == "title") return Value::Of(TitleOf(Text(input)));
  if (name == "string" || name == "safe") return Value::Of(Text(input));
  if (name == "replace") {
    const Value* const to = ArgumentOf(arguments, 1, "new");
    const Value* const from = ArgumentOf(arguments, 0, "old");
    if (from == nullptr || to == nullptr) throw TemplateFailure{"replace expects two texts"};
    const Value* const count = ArgumentOf(arguments, 2, "count");
    return Value::Of(ReplacedText(Text(input), Text(*from), Text(*to),
                                  count == nullptr ? -1 : count->AsInteger().value_or(-1),
                                  &budget_));
  }
  if (name == "indent") {
    const Value* const width = ArgumentOf(arguments, 0, "width");
    const auto blanks = width == nullptr ? 4 : width->AsInteger().value_or(-1);
    const std::string indent =
        blanks >= 0 ? std::string(static_cast<size_t>(std::min<int64_t>(blanks, 1000)), ' ')
                    : Text(*width);
    std::string text =
        Indented(Text(input), indent, Given(arguments, 1, "first"), Given(arguments, 2, "blank"));
    budget_.SpendBytes(text.size());
    return Value::Of(std::move(text));
  }
  if (name == "wordcount") {
    // \w+; words of white space between are what chat templates count.
    return Value::Of(static_cast<int64_t>(
        CallMethod(Value::Of(Text(input)), "split", {}, &budget_).AsSequence()->items.size()));
  }
  if (name == "int") {
    const Value* const otherwise = ArgumentOf(arguments, 0, "default");
    if (const auto number = IntegerOf(input)) return Value::Of(*number);
    if (input.Is<BigInteger>()) return input;
    return otherwise == nullptr ? Value::Of(int64_t{0}) : *otherwise;
  }
  if (name == "float") {
    const Value* const otherwise = ArgumentOf(arguments, 0, "default");
    std::optional<double> number = input.AsNumber();
    if (input.AsString() != nullptr) number = ParseFloat(*input.AsString());
    if (number) return Value::Of(*number);
    return otherwise == nullptr ? Value::Of(0.0) : *otherwise;
  }
  if (name == "abs") {
    if (const auto integer = input.AsInteger()) {
      return *integer < 0 ? Binary("-", Value::Of(int64_t{0}), input) : Value::Of(*integer);
    }
    if (const auto number = input.AsNumber()) return Value::Of(std::abs(*number));
    throw TemplateFailure{Concat("bad operand type for abs(): '", TypeName(input), "'")};
  }
  if (name == "round") {
    const auto number = input.AsNumber();
    if (!number) throw TemplateFailure{Concat("round expects a number, not ", TypeName(input))};
    const Value* const precision = ArgumentOf(arguments, 0, "precision");
    const Value* const method = ArgumentOf(arguments, 1, "method");
    return Value::Of(Rounded(*number, precision == nullptr ? 0 : precision->AsInteger().value_or(0),
                             method == nullptr ? "common" : Text(*method)));
  }
  if (name == "attr") {
    if (first == nullptr) throw TemplateFailure{"attr expects a name"};
    // Members alone, not what a mapping holds.
    if (input.AsMapping() == nullptr || HasMethod(input, Text(*first))) {
      return AttributeOf(input, Text(*first));
    }
    return Value::Missing(Concat("'dict object' has no attribute '", Text(*first), "'"));
  }
  if (name == "length" || name == "count") return Value::Of(static_cast<int64_t>(Length(input)));
  return SequenceFilter(name, input, std::move(arguments));
}

Value Evaluator::SequenceFilter(const std::string& name, const Value& input, Arguments arguments) {
  if (name == "map") return Mapped(input, std::move(arguments));
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr") {
    return Selected(name, input, std::move(arguments));
  }
  if (name == "items") {
    if (input.IsUndefined()) return Value::GeneratorOf({});
    if (input.AsMapping() == nullptr)
      throw TemplateFailure{"Can only get item pairs from a mapping."};
    const Value view = CallMethod(input, "items", {}, &budget_);
    return Value::GeneratorOf(view.AsSequence()->items);
  }
  if (name == "dictsort") {
    if (input.AsMapping() == nullptr) throw TemplateFailure{"dictsort expects a mapping"};
    CheckArguments(name, arguments, 3, {"case_sensitive", "by", "reverse"});
    const Value* const by = ArgumentOf(arguments, 1, "by");
    const size_t place = by != nullptr && Text(*by) == "value" ? 1 : 0;
    const bool exact = Given(arguments, 0, "case_sensitive");
    const bool reverse = Given(arguments, 2, "reverse");
    Value::List items = CallMethod(input, "items", {}, &budget_).AsSequence()->items;
    std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
      const Value& x = a.AsSequence()->items[place];
      const Value& y = b.AsSequence()->items[place];
      const int order = exact ? Compare(x, y, "<") : Compare(Folded(x), Folded(y), "<");
      return reverse ? order > 0 : order < 0;
    });
    return Value::ListOf(std::move(items));
  }
  static constexpr std::string_view kKnown[] = {"first", "last", "list", "join",   "reverse", "sum",
                                                "min",   "max",  "sort", "unique", "batch"};
  if (std::find(std::begin(kKnown), std::end(kKnown), name) == std::end(kKnown)) {
    throw TemplateFailure{Concat("No filter named '", name, "'.")};
  }
  if (name == "reverse" && input.AsString() != nullptr) {
    Value::List characters = Elements(input);
    std::string text;
    for (auto c = characters.rbegin(); c != characters.rend(); ++c) text += *c->AsString();
    return Value::Of(std::move(text));
  }
  Value::List items = Elements(input);
  budget_.Spend(items.size());
  if (name == "first") {
    return items.empty() ? Value::Missing("No first item, sequence was empty.") : items.front();
  }
  if (name == "last") {
    if (input.AsSequence() != nullptr && !input.AsSequence()->has_length()) {
      throw TemplateFailure{"'generator' object is not reversible"};
    }
    return items.empty() ? Value::Missing("No last item, sequence was empty.") : items.back();
  }
  if (name == "list") return Value::ListOf(std::move(items));
  if (name == "reverse") {
    std::reverse(items.begin(), items.end());
    return Value::GeneratorOf(std::move(items));
  }
  const Value* const attribute = ArgumentOf(arguments,
                                            name == "join"   ? 1
                                            : name == "sort" ? 2
                                            : name == "sum"  ? 0
                                                             : 9,
                                            "attribute");
  const bool has_path = attribute != nullptr && !attribute->Is<None>();
  const auto key = [&](const Value& item) { return has_path ? PathOf(item, *attribute) : item; };
  if (name == "join") {
    const Value* const separator = ArgumentOf(arguments, 0, "d");
    std::string text;
    for (size_t i = 0; i < items.size(); ++i) {
      const std::string part =
          (i > 0 && separator != nullptr ? Text(*separator) : "") + Text(key(items[i]));
      budget_.SpendBytes(part.size());
      text += part;
    }
    return Value::Of(std::move(text));
  }
  if (name == "sum") {
    const Value* const start = ArgumentOf(arguments, 1, "start");
    Value sum = start == nullptr ? Value::Of(int64_t{0}) : *start;
    for (const Value& item : items) sum = Binary("+", sum, key(item));
    return sum;
  }
  if (name == "batch") {
    const Value* const count = ArgumentOf(arguments, 0, "linecount");
    const int64_t size = count == nullptr ? 0 : count->AsInteger().value_or(0);
    if (size < 1) throw TemplateFailure{"batch expects a number"};
    const Value* const fill = ArgumentOf(arguments, 1, "fill_with");
    Value::List rows;
    for (size_t i = 0; i < items.size(); i += static_cast<size_t>(size)) {
      const size_t end = std::min(items.size() - i, static_cast<size_t>(size)) + i;
      Value::List row(items.begin() + static_cast<ptrdiff_t>(i),
                      items.begin() + static_cast<ptrdiff_t>(end));
      while (fill != nullptr && !fill->Is<None>() && std::ssize(row) < size) {
        budget_.Spend(1);
        row.push_back(*fill);
      }
      rows.push_back(Value::ListOf(std::move(row)));
    }
    return Value::GeneratorOf(std::move(rows));
  }
  // Those that compare: the key of each, once.
  const bool exact = Given(arguments, name == "sort" ? 1 : 0, "case_sensitive");
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) {
    keyed.emplace_back(exact ? key(item) : Folded(key(item)), item);
    budget_.Spend(8);
  }
  const auto before = [](const auto& a, const auto& b) {
    return Compare(a.first, b.first, "<") < 0;
  };
  if (name == "min" || name == "max") {
    if (keyed.empty()) return Value::Missing("No aggregated item, sequence was empty.");
    size_t best = 0;
    for (size_t i = 1; i < keyed.size(); ++i) {
      if (name == "min" ? before(keyed[i], keyed[best]) : before(keyed[best], keyed[i])) best = i;
    }
    return keyed[best].second;
  }
  Value::List out;
  if (name == "sort") {
    const bool reverse = Given(arguments, 0, "reverse");
    std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
      return reverse ? before(b, a) : before(a, b);
    });
    for (auto& [folded, item] : keyed) out.push_back(std::move(item));
    return Value::ListOf(std::move(out));
  }
  Value::List seen;  // unique
  for (auto& [folded, item] : keyed) {
    budget_.Spend(seen.size() * folded.weight());
    if (std::any_of(seen.begin(), seen.end(),
                    [&f = folded](const Value& s) { return Equal(s, f); })) {
      continue;
    }
    seen.push_back(folded);
    out.push_back(std::move(item));
  }
  return Value::GeneratorOf(std::move(out));
}

// map(attribute="a.b", default=...) or map("filter", ...).
Value Evaluator::Mapped(const Value& input, Arguments arguments) {
  const Value::List items = Elements(input);
  budget_.Spend(items.size());
  Value::List out;
  const Value* const attribute =
      arguments.values.empty() ? ArgumentOf(arguments, 9, "attribute") : nullptr;
  if (attribute != nullptr) {
    const Value* const otherwise = ArgumentOf(arguments, 9, "default");
    for (const Value& item : items) {
      Value value = PathOf(item, *attribute);
      out.push_back(value.IsUndefined() && otherwise != nullptr ? *otherwise : std::move(value));
    }
    return Value::GeneratorOf(std::move(out));
  }
  if (arguments.values.empty() || arguments.values[0].AsString() == nullptr) {
    throw TemplateFailure{"map requires a filter argument"};
  }
  const std::string filter = *arguments.values[0].AsString();
  arguments.values.erase(arguments.values.begin());
  for (const Value& item : items) {
    out.push_back(Filter(filter, item, arguments));
  }
  return Value::GeneratorOf(std::move(out));
}

// select(test, ...) and selectattr(path, test, ...), and what is left by them.
Value Evaluator::Selected(const std::string& name, const Value& input, Arguments arguments) {
  const bool keeps = name.starts_with("select");
  std::optional<Value> path;
  if (name.ends_with("attr")) {
    if (arguments.values.empty()) throw TemplateFailure{Concat(name, " expects an attribute")};
    path = arguments.values[0];
    arguments.values.erase(arguments.values.begin());
  }
  std::string test;
  if (!arguments.values.empty()) {
    test = Text(arguments.values[0]);
    arguments.values.erase(arguments.values.begin());
  }
  Value::List out;
  for (const Value& item : Elements(input)) {
    budget_.Spend(1);
    const Value value = path ? PathOf(item, *path) : item;
    if ((test.empty() ? IsTrue(value) : Test(test, value, arguments)) == keeps) {
      out.push_back(item);
    }
  }
  return Value::GeneratorOf(std::move(out));
}

bool Evaluator::Test(const std::string& name, const Value& input, const Arguments& arguments) {
  const Value* const other = ArgumentOf(arguments, 0, "");
  budget_.Spend(1 + (other == nullptr ? 0 : other->weight()));
  if (name == "defined") return !input.IsUndefined();
  if (name == "undefined") return input.IsUndefined();
  if (name == "none") return input.Is<None>();
  if (name == "string") return input.AsString() != nullptr;
  if (name == "mapping") return input.AsMapping() != nullptr;
  if (name == "boolean") return input.Is<bool>();
  if (name == "true" || name == "false") {
    return input.Is<bool>() && *input.As<bool>() == (name == "true");
  }
  if (name == "integer") return input.Is<int64_t>() || input.Is<BigInteger>();
  if (name == "float") return input.Is<double>();
  if (name == "number") return input.AsNumber().has_value() || input.Is<BigInteger>();
  if (name == "sequence") {
    return input.IsUndefined() || input.AsString() != nullptr || input.AsMapping() != nullptr ||
           (input.AsSequence() != nullptr && input.AsSequence()->has_elements());
  }
  if (name == "iterable") {
    return input.IsUndefined() || input.AsString() != nullptr || input.AsMapping() != nullptr ||
           input.AsSequence() != nullptr;
  }
  if (name == "callable") {
    return input.Is<const Macro*>() || input.Is<Function>() ||
           input.Is<std::shared_ptr<const Method>>() || input.IsUndefined();
  }
  if (name == "lower" || name == "upper") {
    return *CallMethod(Value::Of(Text(input)), "is" + name, {}, &budget_).As<bool>();
  }
  if (name == "odd" || name == "even" || name == "divisibleby") {
    const Value by = name == "divisibleby" && other != nullptr ? *other : Value::Of(int64_t{2});
    const Value rest = Binary("%", input, by);
    return Equal(rest, Value::Of(int64_t{0})) == (name != "odd");
  }
  if (name == "in" || name == "sameas") {
    if (other == nullptr)
      throw TemplateFailure{Concat("the test '", name, "' expects an argument")};
    if (name == "in") return Contains(*other, input);
    return TypeName(input) == TypeName(*other) && Equal(input, *other);
  }
  static constexpr std::pair<std::string_view, std::string_view> kComparisons[] = {
      {"eq", "=="}, {"equalto", "=="},    {"==", "=="}, {"ne", "!="}, {"!=", "!="},
      {"lt", "<"},  {"lessthan", "<"},    {"<", "<"},   {"le", "<="}, {"<=", "<="},
      {"gt", ">"},  {"greaterthan", ">"}, {">", ">"},   {"ge", ">="}, {">=", ">="}};
  for (const auto& [mine, op] : kComparisons) {
    if (mine != name) continue;
    if (other == nullptr)
      throw TemplateFailure{Concat("the test '", name, "' expects an argument")};
    if (op == "==" || op == "!=") return Equal(input, *other) == (op == "==");
    const int order = Compare(input, *other, op.data());
    return (order < 0 && op[0] == '<') || (order > 0 && op[0] == '>') ||
           (order == 0 && op.size() == 2);
  }
  throw TemplateFailure{Concat("No test named '", name, "'.")};
}

}  // namespace tessera::data::chat
