// SPDX-License-Identifier: Apache-2.0
// JSON from outside: parsed without exceptions, refused when nested too deeply.
//
//   TESSERA_ASSIGN_OR_RETURN(const nlohmann::json config, ReadJsonFile(path));
//
// A status names the source and, for a syntax error, the byte. What Python's json module accepts
// beyond the standard is accepted, since model folders and data are written by it: NaN, Infinity
// and -Infinity, numbers beyond a double (infinite), and a key given twice, of which the last
// counts. The time is that of sorting the keys, whatever they are. data/dataset/json_records.h has
// the same with keys in their order.
#ifndef TESSERA_BASE_JSON_TEXT_H_
#define TESSERA_BASE_JSON_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera {

// Arrays and objects within each other beyond this depth are refused.
inline constexpr int kMaxJsonDepth = 64;

struct JsonRules {
  // A key given twice in an object is refused by its name: for what a user writes by hand.
  bool unique_keys = false;
  bool comments = false;  // of C++
  // By the standard: no NaN, no number beyond a double. Integers beyond 64 bits are rounded.
  bool strict = false;
  size_t max_values = static_cast<size_t>(1) << 40;  // members and elements; more are refused
};

// `source` (a path, "path:line") begins the message of a failure.
StatusOr<nlohmann::json> ParseJson(std::string_view text, std::string_view source,
                                   const JsonRules& rules = {});

StatusOr<nlohmann::json> ReadJsonFile(const std::string& path, const JsonRules& rules = {});

// `text` as a JSON string, quotes included. Bytes that are not UTF-8 become U+FFFD.
std::string JsonQuoted(std::string_view text);

}  // namespace tessera

#endif  // TESSERA_BASE_JSON_TEXT_H_
