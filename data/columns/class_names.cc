// SPDX-License-Identifier: Apache-2.0
#include "data/columns/class_names.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace tessera::data {

std::vector<std::string> ClassNames(const TableReader& table, const std::string& column) {
  const auto said = table.metadata().find("huggingface");
  if (said == table.metadata().end()) return {};
  const auto info = ParseJson(said->second, "huggingface").value_or(nullptr);
  const auto* at = &info;
  for (const std::string& key :
       {std::string("info"), std::string("features"), column, std::string("names")}) {
    if (!at->is_object() || !at->contains(key)) return {};
    at = &(*at)[key];
  }
  std::vector<std::string> names;
  if (!at->is_array()) return {};
  for (const auto& name : *at) {
    if (!name.is_string()) return {};
    names.push_back(name.get<std::string>());
  }
  return names;
}

}  // namespace tessera::data
