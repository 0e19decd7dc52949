// SPDX-License-Identifier: Apache-2.0
// A JSON value as a member of a struct whose header does not want to compile nlohmann/json.hpp: a
// value behind a pointer, as std::indirect of C++26.
//
//   #include "nlohmann/json_fwd.hpp"
//   struct TrainState {
//     OrderedJsonMember val_metrics = OrderedJsonMember::Object();
//   };
//
//   #include "nlohmann/json.hpp"        // who looks inside
//   state.val_metrics["accuracy"] = 0.75;
//   for (const auto& [name, value] : state.val_metrics->items()) ...
//   row = *state.val_metrics;
//
// Copies are deep and comparisons look at the values. Null takes no memory, and is what a moved
// one leaves behind.
#ifndef TESSERA_BASE_JSON_MEMBER_H_
#define TESSERA_BASE_JSON_MEMBER_H_

#include <concepts>
#include <string_view>
#include <utility>

#include "nlohmann/json_fwd.hpp"

namespace tessera {

template <typename Json>
class BasicJsonMember {
 public:
  BasicJsonMember() noexcept = default;  // null
  static BasicJsonMember Object();       // {}
  // Of a Json and nothing else: what is in braces would be taken for the elements of an array.
  template <std::same_as<Json> T>
  BasicJsonMember(T json) : BasicJsonMember() {
    Take(&json);
  }
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
  // An object's value for a key; one that lacks the key gets it, and null becomes an object.
  Json& operator[](std::string_view key);

  friend bool operator==(const BasicJsonMember& a, const BasicJsonMember& b) { return a.Equals(b); }

 private:
  void Take(Json* json);  // its value
  bool Equals(const BasicJsonMember& other) const;

  Json* json_ = nullptr;  // null: the value null
};

using JsonMember = BasicJsonMember<nlohmann::json>;
using OrderedJsonMember = BasicJsonMember<nlohmann::ordered_json>;
extern template class BasicJsonMember<nlohmann::json>;
extern template class BasicJsonMember<nlohmann::ordered_json>;

}  // namespace tessera

#endif  // TESSERA_BASE_JSON_MEMBER_H_
