// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/json_part.h"

#include <utility>

#include "base/options.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using nlohmann::json;

const json& Null() {
  static const json* const null = new json();
  return *null;
}

std::string Shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

}  // namespace

bool JsonPart::is_null() const { return value_->is_null(); }

size_t JsonPart::size() const { return value_->is_array() ? value_->size() : 0; }

JsonPart JsonPart::operator[](const char* key) const {
  const std::string separator = place_.ends_with("json") ? ": " : ".";
  if (!value_->is_object()) return JsonPart(Null(), place_ + separator + key);
  const auto at = value_->find(key);
  return JsonPart(at == value_->end() ? Null() : *at, place_ + separator + key);
}

JsonPart JsonPart::operator[](size_t index) const {
  return JsonPart((*value_)[index], Concat(place_, "[", index, "]"));
}

std::string_view JsonPart::type() const {
  if (!value_->is_object()) return {};
  const auto at = value_->find("type");
  if (at == value_->end() || !at->is_string()) return {};
  return at->get_ref<const std::string&>();
}

StatusOr<bool> JsonPart::Bool(const char* key, bool fallback) const {
  const JsonPart item = (*this)[key];
  TESSERA_RETURN_IF_ERROR(ReadValue(item.value(), item.place_, &fallback));
  return fallback;
}

StatusOr<std::string> JsonPart::Text(const char* key, std::string_view fallback) const {
  const JsonPart item = (*this)[key];
  std::string text(fallback);
  TESSERA_RETURN_IF_ERROR(ReadValue(item.value(), item.place_, &text));
  return text;
}

StatusOr<int64_t> JsonPart::Count(const char* key, int64_t fallback) const {
  const JsonPart item = (*this)[key];
  TESSERA_RETURN_IF_ERROR(ReadValue(item.value(), item.place_, &fallback, {.least = 0}));
  return fallback;
}

Status JsonPart::Unsupported() const {
  if (!type().empty()) return InvalidArgument(place_, ": type ", type(), " is not supported");
  return InvalidArgument(place_, ": ", Shown(*value_), " is not supported");
}

Status JsonPart::Wrong(std::string_view what) const { return InvalidArgument(place_, ": ", what); }

}  // namespace tessera::data
