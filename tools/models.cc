// SPDX-License-Identifier: Apache-2.0
// `tessera models`: the presets.
#include <string>

#include "absl/strings/str_format.h"
#include "models/family.h"
#include "models/model.h"
#include "tools/command_line.h"
#include "tools/commands.h"

namespace tessera::tools {
namespace {

Status RunModels() {
  std::string table = absl::StrFormat("%-28s %-11s %16s %10s %10s\n", "preset", "family",
                                      "parameters", "positions", "vocabulary");
  for (const models::Family& family : models::Families()) {
    for (const models::Preset& preset : family.presets) {
      TESSERA_ASSIGN_OR_RETURN(
          const std::unique_ptr<models::Model> model,
          models::BuildModel(preset.config, {.device = Device::Meta(), .initialise = false}));
      absl::StrAppendFormat(&table, "%-28s %-11s %16s %10s %10s\n", preset.name, family.model_type,
                            WithThousands(model->ParameterCount()),
                            WithThousands(model->max_positions()),
                            WithThousands(model->vocab_size()));
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
