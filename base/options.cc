// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/json_text.h"
#include "base/nearest_name.h"
#include "nlohmann/json.hpp"

namespace tessera {
namespace {

using Json = nlohmann::json;

std::string Printed(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A number as a person writes it: 0.0003, not 0.00029999999999999997; 50, not 5e+01; in every
// locale. std::to_chars would add 100 kB of tables to the C library, and the JSON library needs
// none.
std::string NumberText(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  std::string text = Json(value).dump();
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

// 1000.0 and 5e8 are integers too.
StatusOr<Json> ToInteger(const Json& value, const std::string& where) {
  const double number = value.is_number_float() ? value.get<double>() : 0.5;
  if (std::floor(number) == number && std::abs(number) < 9e15) return static_cast<int64_t>(number);
  if (!value.is_number_integer()) {
    return InvalidArgument(where, " must be an integer, not ", Printed(value));
  }
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) {
    return InvalidArgument(where, " is too large: ", Printed(value));
  }
  return value;
}

// One alone is a list of one.
StatusOr<Json> ToNumbers(const Json& value, const std::string& where) {
  if (value.is_number()) return Json::array({value});
  const auto is_number = [](const Json& item) { return item.is_number(); };
  if (value.is_array() && std::all_of(value.begin(), value.end(), is_number)) return value;
  return InvalidArgument(where, " must be a list of numbers, not ", Printed(value));
}

// One text alone is a list of one.
StatusOr<Json> ToTexts(const Json& value, const std::string& where) {
  if (value.is_string()) return Json::array({value});
  const auto is_text = [](const Json& item) { return item.is_string(); };
  if (value.is_array() && std::all_of(value.begin(), value.end(), is_text)) return value;
  return InvalidArgument(where, " must be a text or a list of texts, not ", Printed(value));
}

bool AreIntegers(const Json& list) {
  return list.is_array() && std::all_of(list.begin(), list.end(), [](const Json& item) {
           return item.is_number_integer() &&
                  (!item.is_number_unsigned() || item.get<uint64_t>() <= uint64_t{INT64_MAX});
         });
}

// One alone is a list of one.
StatusOr<Json> ToIntegers(const Json& value, const std::string& where) {
  const Json list = value.is_number() ? Json::array({value}) : value;
  if (AreIntegers(list)) return list;
  return InvalidArgument(where, " must be an integer or a list of them, not ", Printed(value));
}

StatusOr<Json> ToIntegerLists(const Json& value, const std::string& where) {
  const auto is_list = [](const Json& item) { return AreIntegers(item) && !item.empty(); };
  if (value.is_array() && std::all_of(value.begin(), value.end(), is_list)) return value;
  return InvalidArgument(where, " must be a list of lists of integers, not ", Printed(value));
}

StatusOr<Json> ToWeights(const Json& value, const std::string& where) {
  if (!value.is_object()) {
    return InvalidArgument(where,
                           " must be an object of numbers by ids (as a flag 15:-1,27:0.5), not ",
                           Printed(value));
  }
  for (const auto& [key, weight] : value.items()) {
    int64_t id = -1;
    const char* const end = key.data() + key.size();
    const auto read = std::from_chars(key.data(), end, id);
    if (read.ec != std::errc() || read.ptr != end || id < 0) {
      return InvalidArgument(where, " has '", key, "' for an id");
    }
    if (!weight.is_number()) {
      return InvalidArgument(where, " of ", key, " must be a number, not ", Printed(weight));
    }
  }
  return value;
}

// "7;1,2" and "15:-1,27:0.5" as JSON.
std::string IntegerListsText(const std::string& text) {
  std::string json = "[[";
  for (const char c : text) c == ';' ? json += "],[" : json += c;
  return json + "]]";
}
std::string WeightsText(const std::string& text) {
  std::string json = "{\"";
  for (const char c : text) {
    if (c == ':') {
      json += "\":";
    } else if (c == ',') {
      json += ",\"";
    } else {
      json += c;
    }
  }
  return json + "}";
}

Status CheckNumber(double x, const OptionNotes& notes, const std::string& where) {
  if (notes.least && !(x >= *notes.least)) {
    return InvalidArgument(where, " must be at least ", NumberText(*notes.least), ", not ",
                           NumberText(x));
  }
  if (notes.most && !(x <= *notes.most)) {
    return InvalidArgument(where, " must be at most ", NumberText(*notes.most), ", not ",
                           NumberText(x));
  }
  if (notes.above && !(x > *notes.above)) {
    return InvalidArgument(where, " must be above ", NumberText(*notes.above), ", not ",
                           NumberText(x));
  }
  if (notes.below && !(x < *notes.below)) {
    return InvalidArgument(where, " must be below ", NumberText(*notes.below), ", not ",
                           NumberText(x));
  }
  if (!std::isfinite(x)) return InvalidArgument(where, " must be finite, not ", NumberText(x));
  return OkStatus();
}

std::string Listed(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += list.empty() ? name : ", " + name;
  return list;
}

}  // namespace

namespace options_internal {

const OptionNotes& NoNotes() {
  static const auto* notes = new OptionNotes();
  return *notes;
}

namespace {

template <typename T>
struct Field {
  static Json Get(const T& field) { return field; }
  static T From(const Json& value) { return value.get<T>(); }
};
template <>
struct Field<std::map<int64_t, double>> {
  using Value = std::map<int64_t, double>;
  static Json Get(const Value& field) {
    Json object = Json::object();
    for (const auto& [key, number] : field) object[std::to_string(key)] = number;
    return object;
  }
  static Value From(const Json& object) {
    Value field;
    for (const auto& [key, number] : object.items()) field[std::stoll(key)] = number.get<double>();
    return field;
  }
};
template <>
struct Field<std::string> {
  static Json Get(const std::string& field) { return field.empty() ? Json() : Json(field); }
  static std::string From(const Json& value) { return value.get<std::string>(); }
};
template <typename T>
struct Field<std::optional<T>> {
  static Json Get(const std::optional<T>& field) { return field ? Json(*field) : Json(); }
  static T From(const Json& value) { return value.get<T>(); }
};

template <typename T>
constexpr Access kAccess = {
    .get = [](const void* field) { return Field<T>::Get(*static_cast<const T*>(field)); },
    .set = [](void* field, const Json& value) { *static_cast<T*>(field) = Field<T>::From(value); },
    .copy = [](void* to, const void* from) { *static_cast<T*>(to) = *static_cast<const T*>(from); },
};

}  // namespace

#define TESSERA_ACCESS_TO_(...) \
  const Access& AccessTo(const __VA_ARGS__*) { return kAccess<__VA_ARGS__>; }
TESSERA_ACCESS_TO_(bool)
TESSERA_ACCESS_TO_(int64_t)
TESSERA_ACCESS_TO_(double)
TESSERA_ACCESS_TO_(std::string)
TESSERA_ACCESS_TO_(std::vector<double>)
TESSERA_ACCESS_TO_(std::vector<std::string>)
TESSERA_ACCESS_TO_(std::vector<int64_t>)
TESSERA_ACCESS_TO_(std::vector<std::vector<int64_t>>)
TESSERA_ACCESS_TO_(std::map<int64_t, double>)
TESSERA_ACCESS_TO_(std::optional<bool>)
TESSERA_ACCESS_TO_(std::optional<int64_t>)
TESSERA_ACCESS_TO_(std::optional<double>)
TESSERA_ACCESS_TO_(std::optional<std::string>)
#undef TESSERA_ACCESS_TO_

Status ReadValue(const Json& json, const std::string& where, Option::Kind kind,
                 const Access& access, void* value, const OptionNotes& notes) {
  TESSERA_ASSIGN_OR_RETURN(const Json converted, Option::Convert(kind, notes, json, where));
  if (!converted.is_null()) access.set(value, converted);
  return OkStatus();
}

Status ReadMember(const Json& object, std::string_view key, const std::string& source,
                  Option::Kind kind, const Access& access, void* value, const OptionNotes& notes) {
  const auto found = object.find(key);
  if (found == object.end()) return OkStatus();
  return ReadValue(*found, Concat(source, ": '", key, "'"), kind, access, value, notes);
}

}  // namespace options_internal

namespace {

using Kind = Option::Kind;

// The value as its kind; the notes' range is not looked at.
StatusOr<Json> ToKind(Kind kind, const OptionNotes& notes, const Json& value,
                      const std::string& where) {
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    for (const auto& [there, here] : notes.values) {
      if (there == text) return here.empty() ? Json() : Option::FromText(kind, here);
    }
  }
  switch (kind) {
    case Kind::kBool:
      if (value.is_boolean()) return value;
      return InvalidArgument(where, " must be true or false, not ", Printed(value));
    case Kind::kInteger:
      return ToInteger(value, where);
    case Kind::kNumber:
      if (value.is_number()) return value;
      return InvalidArgument(where, " must be a number, not ", Printed(value));
    case Kind::kText:
      if (value.is_string()) return value;
      return InvalidArgument(where, " must be a string, not ", Printed(value));
    case Kind::kNumbers:
      return ToNumbers(value, where);
    case Kind::kTexts:
      return ToTexts(value, where);
    case Kind::kIntegers:
      return ToIntegers(value, where);
    case Kind::kIntegerLists:
      return ToIntegerLists(value, where);
    case Kind::kWeights:
      return ToWeights(value, where);
  }
  return value;
}

Status CheckRange(const OptionNotes& notes, const Json& value, const std::string& where) {
  if (value.is_null()) return OkStatus();
  if (value.is_number()) return CheckNumber(value.get<double>(), notes, where);
  if (value.is_array()) {
    if (notes.count > 0 && std::ssize(value) != notes.count) {
      return InvalidArgument(where, " must be ", notes.count, " values, not ", Printed(value));
    }
    for (const Json& item : value) TESSERA_RETURN_IF_ERROR(CheckRange(notes, item, where));
  }
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      TESSERA_RETURN_IF_ERROR(CheckRange(notes, item, Concat(where, " of ", key)));
    }
  }
  if (!value.is_string() || notes.choices.empty()) return OkStatus();
  const auto text = value.get<std::string>();
  if (std::find(notes.choices.begin(), notes.choices.end(), text) != notes.choices.end()) {
    return OkStatus();
  }
  std::vector<std::string> others;
  for (const auto& [theirs, ours] : notes.values) others.push_back(theirs);
  return InvalidArgument(where, " '", text, "' is not known; use one of ", Listed(notes.choices),
                         others.empty() ? "" : "; words of other systems: ", Listed(others));
}

}  // namespace

Json Option::Get(const void* object) const {
  return access_->get(static_cast<const char*>(object) + offset_);
}

Status Option::Check(const Json& value, const std::string& where) const {
  return CheckRange(notes, value, where);
}

StatusOr<Json> Option::Convert(Kind kind, const OptionNotes& notes, const Json& value,
                               const std::string& where) {
  if (value.is_null()) return value;
  TESSERA_ASSIGN_OR_RETURN(Json converted, ToKind(kind, notes, value, where));
  TESSERA_RETURN_IF_ERROR(CheckRange(notes, converted, where));
  return converted;
}

StatusOr<Json> Option::Convert(const Json& value, const std::string& where) const {
  return Convert(kind, notes, value, where);
}

Status Option::Set(void* object, const Json& value, const std::string& where) const {
  TESSERA_ASSIGN_OR_RETURN(const Json converted, Convert(value, where));
  if (!converted.is_null()) access_->set(static_cast<char*>(object) + offset_, converted);
  return OkStatus();
}

namespace {

// A number as Python writes it too: ".001", "1.e-3", "+1e-3". Null: it is none.
Json PythonNumber(const std::string& text) {
  static constexpr char kDigits[] = "0123456789";
  const size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  const size_t point = std::min(text.find_first_not_of(kDigits, sign), text.size());
  const bool has_point = point < text.size() && text[point] == '.';
  const size_t end = std::min(text.find_first_not_of(kDigits, point + has_point), text.size());
  const std::string whole = text.substr(sign, point - sign);
  const std::string fraction = has_point ? text.substr(point + 1, end - point - 1) : "";
  if (whole.empty() && fraction.empty()) return Json();
  const std::string minus = text[0] == '-' ? "-" : "";
  const StatusOr<Json> value =
      ParseJson(minus + (whole.empty() ? "0" : whole) +
                    (has_point ? "." + (fraction.empty() ? "0" : fraction) : "") + text.substr(end),
                "", {.strict = true});
  return value.ok() && value->is_number() ? *value : Json();
}

// As argparse, transformers' HfArgumentParser and YAML write a switch, in any case; null for any
// other word.
Json TruthOfWord(const std::string& text) {
  std::string word = text;
  for (char& c : word) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  for (const char* yes : {"1", "on", "t", "true", "y", "yes"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"0", "f", "false", "n", "no", "off"}) {
    if (word == no) return false;
  }
  return Json();
}

}  // namespace

Json Option::FromText(const std::string& text) const { return FromText(kind, text); }

Json Option::FromText(Kind kind, const std::string& text) {
  if (kind == Kind::kText || kind == Kind::kTexts) return text;
  if (kind == Kind::kBool) {
    const Json truth = TruthOfWord(text);
    if (!truth.is_null()) return truth;
  }
  if (kind == Kind::kNumber || kind == Kind::kInteger) {
    const Json number = PythonNumber(text);
    if (!number.is_null()) return number;
  }
  std::string json = text;
  const bool is_json = text.find_first_of("[{") != std::string::npos;
  if (!is_json && (kind == Kind::kNumbers || kind == Kind::kIntegers)) {
    Json numbers = Json::array();
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find_first_of(", ", at), text.size());
      const std::string part = text.substr(at, end - at);
      at = end + 1;
      if (part.empty() && text.find(' ') != std::string::npos) continue;  // ", "
      numbers.push_back(PythonNumber(part));
      if (numbers.back().is_null()) return text;
    }
    return numbers;
  }
  if (!is_json && kind == Kind::kIntegerLists) json = IntegerListsText(text);
  if (!is_json && kind == Kind::kWeights) json = WeightsText(text);
  const StatusOr<Json> value = ParseJson(json, "", {.strict = true});
  return value.ok() ? *value : Json(text);
}

std::string Option::ToText(const Json& value) const {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return NumberText(value.get<double>());
  if (!value.is_structured()) return Printed(value);
  const char* const between =
      kind == Kind::kIntegerLists && !value.empty() && value.front().is_array() ? ";" : ",";
  std::string list;
  for (const auto& [key, item] : value.items()) {
    list += (list.empty() ? "" : between) + (value.is_object() ? key + ":" : "") + ToText(item);
  }
  return list;
}

bool Option::IsNeutral(const Json& value) const {
  return value.is_null() || value == *notes.neutral || (kind == Kind::kBool && value == *default_);
}

OptionTable::OptionTable() = default;
OptionTable::OptionTable(const OptionTable& other) = default;
OptionTable::OptionTable(OptionTable&& other) noexcept = default;
OptionTable& OptionTable::operator=(const OptionTable& other) = default;
OptionTable& OptionTable::operator=(OptionTable&& other) noexcept = default;
OptionTable::~OptionTable() = default;

OptionTable& OptionTable::AddField(const char* key, const char* help, const OptionNotes& notes,
                                   Option::Kind kind, const options_internal::Access* access,
                                   ptrdiff_t offset) {
  TESSERA_CHECK(Find(key) == nullptr, "options", title_, ": '", key, "' is declared twice");
  Option& option = options_.emplace_back();
  option.section = title_;
  option.key = key;
  option.help = help;
  option.notes = notes;
  option.kind = kind;
  option.access_ = access;
  option.offset_ = offset;
  option.defaults_ = defaults_;
  option.default_ = option.Get(defaults_.get());
  return *this;
}

OptionTable& OptionTable::IncludeTable(const OptionTable& base, ptrdiff_t offset) {
  for (const Option& inherited : base.options()) {
    AddField(inherited.key.c_str(), inherited.help.c_str(), inherited.notes, inherited.kind,
             inherited.access_, inherited.offset_ + offset);
    options_.back().section = inherited.section;
  }
  return *this;
}

const Option* OptionTable::Find(std::string_view key) const {
  for (const Option& option : options_) {
    if (option.key == key) return &option;
  }
  return nullptr;
}

const Option* OptionTable::FindByAnyName(std::string_view name) const {
  if (const Option* option = Find(name)) return option;
  for (const Option& option : options_) {
    for (const OptionAlias& alias : option.notes.aliases) {
      if (alias.name == name) return &option;
    }
  }
  return nullptr;
}

Status OptionTable::Apply(const Json& json, const std::string& source, void* object) const {
  if (json.is_null()) return OkStatus();  // `{}` in C++
  if (!json.is_object()) return InvalidArgument(source, ": a JSON object is needed");
  for (const auto& [key, value] : json.items()) {
    const Option* option = FindByAnyName(key);
    if (option == nullptr) {
      std::vector<std::string> known;
      for (const Option& one : options_) known.push_back(one.key);
      return InvalidArgument(source, ": unknown key '", key, "'", DidYouMean(key, known));
    }
    TESSERA_RETURN_IF_ERROR(option->Set(object, value, Concat(source, ": '", key, "'")));
  }
  return OkStatus();
}

OptionTable& OptionTable::AddUnsupported(std::vector<UnsupportedKey> keys) {
  unsupported_ = std::move(keys);
  return *this;
}

StatusOr<Json> OptionTable::SupportedOf(const Json& json, const std::string& source,
                                        std::vector<std::string>* not_applied) const {
  if (!json.is_object()) return InvalidArgument(source, ": not a JSON object");
  Json supported = Json::object();
  for (const Option& option : options_) {
    const auto found = json.find(option.key);
    if (found != json.end() && !found->is_null()) supported[option.key] = *found;
  }
  for (const auto& [key, neutral] : unsupported_) {
    const auto found = json.find(key);
    const bool asks = found != json.end() && !found->is_null() && *found != *neutral &&
                      !(found->is_array() && found->empty());
    if (asks) not_applied->push_back(Concat("'", key, "': ", Printed(*found)));
  }
  return supported;
}

Status OptionTable::ApplySupported(const Json& json, const std::string& source,
                                   void* object) const {
  std::vector<std::string> refused;
  TESSERA_ASSIGN_OR_RETURN(const Json supported, SupportedOf(json, source, &refused));
  if (!refused.empty()) return InvalidArgument(source, ": ", refused[0], " is not supported");
  return Apply(supported, source, object);
}

nlohmann::ordered_json OptionTable::ToJson(const void* object) const {
  nlohmann::ordered_json json;
  for (const Option& option : options_) json[option.key] = option.Get(object);
  return json;
}

Status OptionTable::Check(const void* object) const {
  for (const Option& option : options_) {
    TESSERA_RETURN_IF_ERROR(option.Check(option.Get(object), option.key));
  }
  return OkStatus();
}

}  // namespace tessera
