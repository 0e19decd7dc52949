// SPDX-License-Identifier: Apache-2.0
// JSON with its keys in their order and integers of any size.
//
//   TESSERA_ASSIGN_OR_RETURN(const auto json, ParseOrderedJson(text, "chat.jsonl:3"));
//   BigInteger(json["id"]);  // "18446744073709551616"; empty: no integer beyond 64 bits
#ifndef TESSERA_BASE_JSON_ORDERED_H_
#define TESSERA_BASE_JSON_ORDERED_H_

#include <string_view>

#include "base/json_text.h"
#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera {

// ParseJson, but integers beyond 64 bits become values that BigInteger reads.
StatusOr<nlohmann::ordered_json> ParseOrderedJson(std::string_view text, std::string_view source,
                                                  const JsonRules& rules = {});

// The digits of an integer beyond 64 bits, with its sign; empty for any other value.
std::string_view BigInteger(const nlohmann::ordered_json& value);

}  // namespace tessera

#endif  // TESSERA_BASE_JSON_ORDERED_H_
