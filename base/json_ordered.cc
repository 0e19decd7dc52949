// SPDX-License-Identifier: Apache-2.0
#include "base/json_ordered.h"

#include "base/json_parser.h"
#include "nlohmann/json.hpp"

namespace tessera {

using Json = nlohmann::ordered_json;

StatusOr<Json> ParseOrderedJson(std::string_view text, std::string_view source,
                                const JsonRules& rules) {
  return ParseJsonAs<Json>(text, source, rules);
}

std::string_view BigInteger(const Json& value) {
  const auto* const digits = value.get_ptr<const Json::binary_t*>();
  if (digits == nullptr) return {};
  return {reinterpret_cast<const char*>(digits->data()), digits->size()};
}

}  // namespace tessera
