// SPDX-License-Identifier: Apache-2.0
#include "corpus/step.h"

#include <map>

#include "nlohmann/json.hpp"

namespace tessera::corpus {

Status CheckNames(const OptionTable& table, const nlohmann::json& options,
                  const std::string& source) {
  if (!options.is_object()) return OkStatus();
  std::map<const Option*, std::string> names;
  for (const auto& [name, value] : options.items()) {
    const Option* const option = table.FindByAnyName(name);
    if (option == nullptr) continue;
    const auto [known, is_first] = names.emplace(option, name);
    if (!is_first) {
      return InvalidArgument(source, ": '", known->second, "' and '", name, "' are one option; ",
                             "give its values under one name");
    }
  }
  return OkStatus();
}

}  // namespace tessera::corpus
