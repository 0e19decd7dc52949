// SPDX-License-Identifier: Apache-2.0
// A JSON value as a member of a struct whose header does not want to compile nlohmann/json.hpp: a
// value behind a pointer, as std::indirect of C++26.
//
//   #include "nlohmann/json_fwd.hpp"
//   struct TrainState {
//     OrderedJsonMember val_metrics = OrderedJsonMember::Object();
//     JsonMember threshold = 0.5;  // scalars, null and braces of them do without nlohmann/json.hpp
//   };
//
//   #include "nlohmann/json.hpp"        // who looks inside
//   state.val_metrics["accuracy"] = 0.75;
//   for (const auto& [name, value] : state.val_metrics->items()) ...
//   row = *state.val_metrics;
//   state.val_metrics = {{"accuracy", 0.75}, {"labels", {"yes", "no"}}};   // as a Json is made
//
// Copies are deep and comparisons look at the values. Null takes no memory, and is what a moved
// one leaves behind.
#ifndef TESSERA_BASE_JSON_MEMBER_H_
#define TESSERA_BASE_JSON_MEMBER_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "nlohmann/json_fwd.hpp"

namespace tessera {

// What a member is made of where nlohmann/json.hpp is not compiled.
template <typename T>
concept JsonScalar = std::same_as<T, std::nullptr_t> || std::same_as<T, bool> ||
    std::same_as<T, int> || std::same_as<T, int64_t> || std::same_as<T, uint64_t> ||
    std::same_as<T, double> || std::same_as<T, const char*> || std::same_as<T, std::string>;

template <typename Json>
class BasicJsonMember {
 public:
  BasicJsonMember() noexcept = default;  // null
  static BasicJsonMember Object();       // {}
  static BasicJsonMember Array();        // []
  template <JsonScalar T>
  BasicJsonMember(T value);
  BasicJsonMember(const Json& value);
  BasicJsonMember(Json&& value);
  // Whatever else a Json is made of.
  template <typename T>
  requires(!JsonScalar<T> && !std::same_as<T, BasicJsonMember> && !std::same_as<T, Json> &&
           std::constructible_from<Json, T>) BasicJsonMember(T value)
      : BasicJsonMember(Json(std::move(value))) {}
  // An object if every one is a pair of a string and a value, else an array: nlohmann's rule.
  BasicJsonMember(std::initializer_list<BasicJsonMember> values);
  BasicJsonMember(const BasicJsonMember& other);
  BasicJsonMember(BasicJsonMember&& other) noexcept : json_(std::exchange(other.json_, nullptr)) {}
  BasicJsonMember& operator=(BasicJsonMember other) noexcept {
    std::swap(json_, other.json_);
    return *this;
  }
  ~BasicJsonMember();

  Json& operator*();
  const Json& operator*() const;
  Json* operator->() { return &**this; }
  const Json* operator->() const { return &**this; }
  operator const Json&() const { return **this; }
  // An object's value for a key; one that lacks the key gets it, and null becomes an object.
  Json& operator[](std::string_view key);
  const Json& operator[](std::string_view key) const;  // the key is there
  Json& operator[](size_t index);                      // of an array
  const Json& operator[](size_t index) const;

  friend bool operator==(const BasicJsonMember& a, const BasicJsonMember& b) { return a.Equals(b); }
  template <std::same_as<Json> J>
  friend bool operator==(const BasicJsonMember& a, const J& b) {
    return *a == b;
  }

 private:
  bool Equals(const BasicJsonMember& other) const;

  Json* json_ = nullptr;  // null: the value null
};

using JsonMember = BasicJsonMember<nlohmann::json>;
using OrderedJsonMember = BasicJsonMember<nlohmann::ordered_json>;
extern template class BasicJsonMember<nlohmann::json>;
extern template class BasicJsonMember<nlohmann::ordered_json>;

}  // namespace tessera

#endif  // TESSERA_BASE_JSON_MEMBER_H_
