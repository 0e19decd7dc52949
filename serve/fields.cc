// SPDX-License-Identifier: Apache-2.0
#include "serve/fields.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/nearest_name.h"
#include "data/dataset/json_records.h"

namespace tessera::serve {

using nlohmann::ordered_json;

Fields::Fields(const ordered_json& body) : body_(body) {
  if (!body.is_object()) status_ = InvalidArgument("the body must be a JSON object");
}

void Fields::Fail(const std::string& key, const Status& status) {
  if (!status_.ok()) return;
  failed_ = key;
  status_ = status;
}

void Fields::Fail(const std::string& key, const std::string& message) {
  Fail(key, InvalidArgument(key, ": ", message));
}

const ordered_json* Fields::Any(const std::string& key) {
  asked_.insert(key);
  if (!body_.is_object()) return nullptr;
  const auto field = body_.find(key);
  return field == body_.end() || field->is_null() ? nullptr : &*field;
}

std::optional<double> Fields::Number(const std::string& key, double least, double most) {
  const ordered_json* const field = Any(key);
  if (field == nullptr) return std::nullopt;
  const std::string_view big = data::BigInteger(*field);
  const double value = field->is_number() ? field->get<double>()
                       : big.empty()      ? std::nan("")
                                          : std::strtod(std::string(big).c_str(), nullptr);
  if (value >= least && value <= most) return value;
  Fail(key, Concat("must be a number from ", least, " to ", most));
  return std::nullopt;
}

std::optional<int64_t> Fields::Integer(const std::string& key, int64_t least, int64_t most) {
  const ordered_json* const field = Any(key);
  if (field == nullptr) return std::nullopt;
  // What is whole may be written as 1.0; unsigned numbers beyond int64 are none of ours.
  std::optional<int64_t> value;
  if (field->is_number_unsigned()) {
    const auto large = field->get<uint64_t>();
    if (large <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      value = static_cast<int64_t>(large);
    }
  } else if (field->is_number_integer()) {
    value = field->get<int64_t>();
  } else if (field->is_number_float()) {
    const auto real = field->get<double>();
    if (std::abs(real) < 1e15 && real == std::floor(real)) value = static_cast<int64_t>(real);
  }
  if (value && *value >= least && *value <= most) return value;
  const bool open = most == std::numeric_limits<int64_t>::max();
  Fail(key, open ? Concat("must be an integer of at least ", least)
                 : Concat("must be an integer from ", least, " to ", most));
  return std::nullopt;
}

std::optional<bool> Fields::Flag(const std::string& key) {
  const ordered_json* const field = Any(key);
  if (field == nullptr) return std::nullopt;
  if (field->is_boolean()) return field->get<bool>();
  Fail(key, "must be true or false");
  return std::nullopt;
}

std::optional<std::string> Fields::Text(const std::string& key) {
  const ordered_json* const field = Any(key);
  if (field == nullptr) return std::nullopt;
  if (field->is_string()) return field->get<std::string>();
  Fail(key, "must be a text");
  return std::nullopt;
}

std::optional<std::vector<std::string>> Fields::Texts(const std::string& key, size_t most) {
  const ordered_json* const field = Any(key);
  if (field == nullptr) return std::nullopt;
  if (field->is_string()) return std::vector{field->get<std::string>()};
  const bool texts = field->is_array() && std::all_of(field->begin(), field->end(),
                                                      [](auto& text) { return text.is_string(); });
  if (texts && field->size() <= most) return field->get<std::vector<std::string>>();
  Fail(key, Concat("must be a text, or a list of at most ", most));
  return std::nullopt;
}

void Fields::Setting(const Option& option, nlohmann::json* asked) {
  std::vector<std::string> names = {option.key};
  for (const OptionAlias& alias : option.notes.aliases) names.push_back(alias.name);
  std::string given;
  for (const std::string& name : names) {
    const ordered_json* const field = Any(name);
    if (field == nullptr) continue;
    nlohmann::json value = *field;
    if (const std::string_view big = data::BigInteger(*field); !big.empty()) {
      value = std::strtod(std::string(big).c_str(), nullptr);
    }
    const bool whole = option.kind == Option::Kind::kInteger && value.is_number_float() &&
                       std::abs(value.get<double>()) < 1e15 &&
                       value.get<double>() == std::floor(value.get<double>());
    if (whole) value = static_cast<int64_t>(value.get<double>());
    const auto converted = option.Convert(value, name + ":");
    if (!converted.ok()) return Fail(name, converted.status());
    if (!given.empty() && (*asked)[option.key] != *converted) {
      return Fail(name, Concat("is given as ", given, " too, with another value"));
    }
    given = name;
    (*asked)[option.key] = *converted;
  }
}

void Fields::Allow(std::initializer_list<const char*> keys) {
  for (const char* key : keys) asked_.insert(key);
}

void Fields::Refuse(const std::string& key, const std::string& why, const ordered_json& neutral) {
  const ordered_json* const field = Any(key);
  if (field == nullptr || *field == neutral || *field == ordered_json(false)) return;
  if ((field->is_structured() || field->is_string()) && field->empty()) return;
  Fail(key, why);
}

Status Fields::Finish() {
  if (!status_.ok() || !body_.is_object()) return status_;
  for (const auto& [key, value] : body_.items()) {
    if (asked_.contains(key)) continue;
    const std::vector<std::string> names(asked_.begin(), asked_.end());
    Fail(key, Concat("there is no such field here", DidYouMean(key, names)));
    return status_;
  }
  return status_;
}

}  // namespace tessera::serve
