// SPDX-License-Identifier: Apache-2.0
// `tessera models`: the presets.
#include <cstdio>
#include <string>

#include "models/family.h"
#include "models/model.h"
#include "tools/command_line.h"
#include "tools/commands.h"

namespace tessera::tools {
namespace {

Status RunModels() {
  std::string table;
  char line[160];
  std::snprintf(line, sizeof(line), "%-28s %-10s %16s %10s %10s\n", "preset", "family",
                "parameters", "positions", "vocabulary");
  table += line;
  for (const models::Family& family : models::Families()) {
    for (const models::Preset& preset : family.presets) {
      TESSERA_ASSIGN_OR_RETURN(
          const std::unique_ptr<models::Model> model,
          models::BuildModel(preset.config, {.device = Device::Meta(), .initialise = false}));
      std::snprintf(line, sizeof(line), "%-28s %-10s %16s %10s %10s\n", preset.name.c_str(),
                    family.model_type.c_str(), WithThousands(model->ParameterCount()).c_str(),
                    WithThousands(model->max_positions()).c_str(),
                    WithThousands(model->vocab_size()).c_str());
      table += line;
    }
  }
  return WriteOut(table);
}

}  // namespace

void AddModelsCommand(CLI::App& app, CommandState& state) {
  CLI::App* command = app.add_subcommand("models", "List the presets with their parameter counts");
  command->footer("Example:\n  tessera models");
  command->callback([&state] { state.run = RunModels; });
}

}  // namespace tessera::tools
