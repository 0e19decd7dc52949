// SPDX-License-Identifier: Apache-2.0
// JSON from outside: parsed without exceptions, refused when nested too deeply.
//
//   TESSERA_ASSIGN_OR_RETURN(const nlohmann::json config, ReadJsonFile(path));
//
// A status names the source and, for a syntax error, the byte offset.
#ifndef TESSERA_DATA_TOKENIZER_JSON_TEXT_H_
#define TESSERA_DATA_TOKENIZER_JSON_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/status.h"

namespace tessera::data {

// Arrays and objects within each other beyond this depth are refused.
inline constexpr int kMaxJsonDepth = 64;

// `source` (a path, "path:line") begins the message of a failure.
StatusOr<nlohmann::json> ParseJson(std::string_view text, std::string_view source);

StatusOr<nlohmann::json> ReadJsonFile(const std::string& path);

// `text` as a JSON string, quotes included. Bytes that are not UTF-8 become U+FFFD.
std::string JsonQuoted(std::string_view text);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_JSON_TEXT_H_
