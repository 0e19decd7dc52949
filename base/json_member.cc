// SPDX-License-Identifier: Apache-2.0
#include "base/json_member.h"

#include <algorithm>
#include <string>
#include <utility>

#include "nlohmann/json.hpp"

namespace tessera {

template <typename Json>
BasicJsonMember<Json> BasicJsonMember<Json>::Object() {
  return Json::object();
}

template <typename Json>
BasicJsonMember<Json> BasicJsonMember<Json>::Array() {
  return Json::array();
}

template <typename Json>
template <JsonScalar T>
BasicJsonMember<Json>::BasicJsonMember(T value)
    : json_(std::same_as<T, std::nullptr_t> ? nullptr : new Json(std::move(value))) {}

template <typename Json>
BasicJsonMember<Json>::BasicJsonMember(const Json& value)
    : json_(value.is_null() ? nullptr : new Json(value)) {}

template <typename Json>
BasicJsonMember<Json>::BasicJsonMember(Json&& value)
    : json_(value.is_null() ? nullptr : new Json(std::move(value))) {}

template <typename Json>
BasicJsonMember<Json>::BasicJsonMember(std::initializer_list<BasicJsonMember> values)
    : json_(new Json(Json::array())) {
  const bool is_object = std::all_of(values.begin(), values.end(), [](const auto& value) {
    return value->is_array() && value->size() == 2 && value->front().is_string();
  });
  if (is_object) *json_ = Json::object();
  for (const BasicJsonMember& value : values) {
    if (is_object) {
      json_->emplace(value->front().template get<std::string>(), Json(value->back()));
    } else {
      json_->push_back(*value);
    }
  }
}

template <typename Json>
BasicJsonMember<Json>::BasicJsonMember(const BasicJsonMember& other)
    : json_(other.json_ == nullptr ? nullptr : new Json(*other.json_)) {}

template <typename Json>
BasicJsonMember<Json>::~BasicJsonMember() {
  delete json_;
}

template <typename Json>
Json& BasicJsonMember<Json>::operator*() {
  if (json_ == nullptr) json_ = new Json();
  return *json_;
}

template <typename Json>
const Json& BasicJsonMember<Json>::operator*() const {
  static const auto* const null = new Json();
  return json_ == nullptr ? *null : *json_;
}

template <typename Json>
Json& BasicJsonMember<Json>::operator[](std::string_view key) {
  return (**this)[std::string(key)];
}

template <typename Json>
const Json& BasicJsonMember<Json>::operator[](std::string_view key) const {
  return (**this)[std::string(key)];
}

template <typename Json>
Json& BasicJsonMember<Json>::operator[](size_t index) {
  return (**this)[index];
}

template <typename Json>
const Json& BasicJsonMember<Json>::operator[](size_t index) const {
  return (**this)[index];
}

template <typename Json>
bool BasicJsonMember<Json>::Equals(const BasicJsonMember& other) const {
  return **this == *other;
}

template class BasicJsonMember<nlohmann::json>;
template class BasicJsonMember<nlohmann::ordered_json>;

#define TESSERA_OF_SCALAR_(...)                      \
  template JsonMember::BasicJsonMember(__VA_ARGS__); \
  template OrderedJsonMember::BasicJsonMember(__VA_ARGS__)
TESSERA_OF_SCALAR_(std::nullptr_t);
TESSERA_OF_SCALAR_(bool);
TESSERA_OF_SCALAR_(int);
TESSERA_OF_SCALAR_(int64_t);
TESSERA_OF_SCALAR_(uint64_t);
TESSERA_OF_SCALAR_(double);
TESSERA_OF_SCALAR_(const char*);
TESSERA_OF_SCALAR_(std::string);
#undef TESSERA_OF_SCALAR_

}  // namespace tessera
