// SPDX-License-Identifier: Apache-2.0
#include "base/json_member.h"

#include <string>

#include "nlohmann/json.hpp"

namespace tessera {

template <typename Json>
BasicJsonMember<Json> BasicJsonMember<Json>::Object() {
  return Json::object();
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
void BasicJsonMember<Json>::Take(Json* json) {
  **this = std::move(*json);
}

template <typename Json>
bool BasicJsonMember<Json>::Equals(const BasicJsonMember& other) const {
  return **this == *other;
}

template class BasicJsonMember<nlohmann::json>;
template class BasicJsonMember<nlohmann::ordered_json>;

}  // namespace tessera
