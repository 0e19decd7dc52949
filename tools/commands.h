// SPDX-License-Identifier: Apache-2.0
// The commands of the program, one source file each.
//
// An `Add...Command` puts a subcommand with its flags and its help into `app`; when it is chosen,
// parsing leaves in `state.run` what is then to be done.
#ifndef TESSERA_TOOLS_COMMANDS_H_
#define TESSERA_TOOLS_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/written_names.h"

namespace tessera::tools {

struct Program;

struct CommandState {
  const Program* program = nullptr;         // whose commands these are
  std::vector<std::string> arguments = {};  // of the command line, the command's name first
  WrittenNames names = {};                  // that the user gave flags and keys
  std::function<Status()> run = nullptr;
};

void AddCompletionCommand(CLI::App& app, CommandState& state);
void AddConvertCommand(CLI::App& app, CommandState& state);
void AddMergeCommand(CLI::App& app, CommandState& state);
void AddQuantizeCommand(CLI::App& app, CommandState& state);
void AddCorpusCommand(CLI::App& app, CommandState& state);
void AddDiffCommand(CLI::App& app, CommandState& state);
void AddEmbedCommand(CLI::App& app, CommandState& state);
void AddEvalCommand(CLI::App& app, CommandState& state);
void AddExplainCommand(CLI::App& app, CommandState& state);
void AddForwardCommand(CLI::App& app, CommandState& state);
void AddGenerateCommand(CLI::App& app, CommandState& state);
void AddInspectCommand(CLI::App& app, CommandState& state);
void AddLaunchCommand(CLI::App& app, CommandState& state);
void AddManualCommand(CLI::App& app, CommandState& state);
void AddModelsCommand(CLI::App& app, CommandState& state);
void AddPlanCommand(CLI::App& app, CommandState& state);
void AddPredictCommand(CLI::App& app, CommandState& state);
void AddReplayCommand(CLI::App& app, CommandState& state);
void AddReportCommand(CLI::App& app, CommandState& state);
void AddRerankCommand(CLI::App& app, CommandState& state);
void AddServeCommand(CLI::App& app, CommandState& state);
void AddTokenizeCommand(CLI::App& app, CommandState& state);
void AddTrainCommand(CLI::App& app, CommandState& state);
void AddTrainTokenizerCommand(CLI::App& app, CommandState& state);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_COMMANDS_H_
