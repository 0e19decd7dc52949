// SPDX-License-Identifier: Apache-2.0
#include "train/config/arguments.h"

#include "base/error.h"
#include "base/options.h"
#include "train/config/run_config.h"

namespace tessera::train {

void AddArgumentTable(const OptionTable& table) {
  for (const Option& option : table.options()) {
    std::vector<std::string> names = {option.key};
    for (const OptionAlias& alias : option.notes.aliases) names.push_back(alias.name);
    for (const std::string& name : names) {
      const Option* const taken = FindRunConfigKey(name);
      TESSERA_CHECK(taken == nullptr, "AddArguments", "'", name, "' of ", table.title(),
                    " is a name of a run's key, ", taken->key, " (", taken->section, ")");
    }
  }
  const OptionPartRegistration registration({.key = "", .name = table.title(), .table = &table});
}

}  // namespace tessera::train
