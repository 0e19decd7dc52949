// SPDX-License-Identifier: Apache-2.0
#include "core/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "core/error.h"
#include "core/nearest_name.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

std::string Printed(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A number as a person writes it: 3e-4 and 0.1, not 0.00029999999999999997; in every locale.
std::string NumberText(double value) {
  char text[40];
  char* end = text;
  for (int digits = 1; digits <= 17; ++digits) {
    end = std::to_chars(text, std::end(text), value, std::chars_format::general, digits).ptr;
    double read = 0;
    std::from_chars(text, end, read);
    if (read == value) break;
  }
  return std::string(text, end);
}

StatusOr<Json> ToInteger(const Json& value, const std::string& where) {
  if (!value.is_number_integer()) {
    return InvalidArgument(where, " must be an integer, not ", Printed(value));
  }
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) {
    return InvalidArgument(where, " is too large: ", Printed(value));
  }
  return value;
}

StatusOr<Json> ToNumbers(const Json& value, const std::string& where) {
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

Status CheckNumber(double x, const OptionNotes& notes, const std::string& where) {
  if (notes.least && !(x >= *notes.least)) {
    return InvalidArgument(where, " must be at least ", *notes.least, ", not ", NumberText(x));
  }
  if (notes.most && !(x <= *notes.most)) {
    return InvalidArgument(where, " must be at most ", *notes.most, ", not ", NumberText(x));
  }
  if (notes.above && !(x > *notes.above)) {
    return InvalidArgument(where, " must be above ", *notes.above, ", not ", NumberText(x));
  }
  if (notes.below && !(x < *notes.below)) {
    return InvalidArgument(where, " must be below ", *notes.below, ", not ", NumberText(x));
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

StatusOr<Json> Option::ToKind(const Json& value, const std::string& where) const {
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    for (const auto& [there, here] : notes.values) {
      if (there == text) return here.empty() ? Json() : FromText(here);
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
  }
  return value;
}

Status Option::Check(const Json& value, const std::string& where) const {
  if (value.is_null()) return OkStatus();
  if (value.is_number()) return CheckNumber(value.get<double>(), notes, where);
  if (value.is_array()) {
    if (notes.count > 0 && std::ssize(value) != notes.count) {
      return InvalidArgument(where, " must be ", notes.count, " values, not ", Printed(value));
    }
    for (const Json& item : value) TESSERA_RETURN_IF_ERROR(Check(item, where));
  }
  if (!value.is_string() || notes.choices.empty()) return OkStatus();
  const auto text = value.get<std::string>();
  if (std::find(notes.choices.begin(), notes.choices.end(), text) != notes.choices.end()) {
    return OkStatus();
  }
  return InvalidArgument(where, " '", text, "' is not known; use one of ", Listed(notes.choices));
}

StatusOr<Json> Option::Convert(const Json& value, const std::string& where) const {
  if (value.is_null()) return value;
  TESSERA_ASSIGN_OR_RETURN(Json converted, ToKind(value, where));
  TESSERA_RETURN_IF_ERROR(Check(converted, where));
  return converted;
}

Status Option::Set(void* object, const Json& value, const std::string& where) const {
  TESSERA_ASSIGN_OR_RETURN(const Json converted, Convert(value, where));
  if (!converted.is_null()) set_(object, converted);
  return OkStatus();
}

Json Option::FromText(const std::string& text) const {
  if (kind == Kind::kText || kind == Kind::kTexts) return text;
  if (kind == Kind::kBool) {
    if (text == "1" || text == "on" || text == "yes") return true;
    if (text == "0" || text == "off" || text == "no") return false;
  }
  const bool list = kind == Kind::kNumbers && text.find('[') == std::string::npos;
  const Json value = Json::parse(list ? "[" + text + "]" : text, nullptr,
                                 /*allow_exceptions=*/false);
  return value.is_discarded() ? Json(text) : value;
}

std::string Option::ToText(const Json& value) const {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return NumberText(value.get<double>());
  if (!value.is_array()) return Printed(value);
  std::string list;
  for (const Json& item : value) list += (list.empty() ? "" : ",") + ToText(item);
  return list;
}

bool Option::IsNeutral(const Json& value) const {
  return value.is_null() || value == notes.neutral || (kind == Kind::kBool && value == default_);
}

Option& OptionTable::AddOption(std::string key, std::string help, OptionNotes notes) {
  TESSERA_CHECK(Find(key) == nullptr, "options", title_, ": '", key, "' is declared twice");
  Option& option = options_.emplace_back();
  option.section = title_;
  option.key = std::move(key);
  option.help = std::move(help);
  option.notes = std::move(notes);
  return option;
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
