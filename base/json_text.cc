// SPDX-License-Identifier: Apache-2.0
#include "base/json_text.h"

#include "base/file.h"
#include "base/json_parser.h"
#include "nlohmann/json.hpp"

namespace tessera {

using nlohmann::json;

StatusOr<json> ParseJson(std::string_view text, std::string_view source, const JsonRules& rules) {
  return ParseJsonAs<json>(text, source, rules);
}

StatusOr<json> ReadJsonFile(const std::string& path, const JsonRules& rules) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseJson(text, path, rules);
}

std::string JsonQuoted(std::string_view text) {
  return json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace tessera
