// SPDX-License-Identifier: Apache-2.0
// One part of a tokenizer.json with its place in the file, for messages that name both.
//
//   const JsonPart normalizer = root["normalizer"];
//   if (normalizer.type() != "NFC") return normalizer.Unsupported();
//   // tokenizer.json: normalizer.normalizers[1]: type Nmt is not supported
#ifndef TESSERA_DATA_TOKENIZER_JSON_PART_H_
#define TESSERA_DATA_TOKENIZER_JSON_PART_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::data {

class JsonPart {
 public:
  // `value` must outlive the part; `place` is the path of the file and, behind a colon, of the
  // part.
  JsonPart(const nlohmann::json& value, std::string place)
      : value_(&value), place_(std::move(place)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& place() const { return place_; }
  bool is_null() const;

  // The member of an object; null where there is none.
  JsonPart operator[](const char* key) const;
  // The element of an array.
  JsonPart operator[](size_t index) const;
  size_t size() const;  // 0 of what is no array

  // The member "type", as a text; empty where there is none.
  std::string_view type() const;

  // Members of this object; `fallback` where they are absent or null, a status where they are of
  // another kind.
  StatusOr<bool> Bool(const char* key, bool fallback) const;
  StatusOr<std::string> Text(const char* key, std::string_view fallback) const;
  StatusOr<int64_t> Count(const char* key, int64_t fallback) const;  // >= 0

  // "<place>: type X is not supported", or what was found instead of an object with a type.
  Status Unsupported() const;
  // "<place>: <what>".
  Status Wrong(std::string_view what) const;

 private:
  const nlohmann::json* value_;
  std::string place_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_JSON_PART_H_
