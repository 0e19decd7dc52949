// SPDX-License-Identifier: Apache-2.0
// `tessera explain`: what becomes of each key of a configuration, without a run.
#include <algorithm>
#include <memory>
#include <string>

#include "base/printable_text.h"
#include "dist/comm/launch_environment.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/run_flags.h"

namespace tessera::tools {
namespace {

// What a file says stays in its column and line.
std::string OneField(std::string text) {
  std::replace(text.begin(), text.end(), '\t', ' ');
  return PrintableLine(text, 500);
}

// "zero_optimization.stage	translated	zero".
Status RunExplain(const CLI::App& command, const RunFlags& flags, WrittenNames* names) {
  TESSERA_ASSIGN_OR_RETURN(const dist::LaunchEnvironment launch,
                           dist::ReadLaunchEnvironment(std::getenv));
  TESSERA_ASSIGN_OR_RETURN(const train::ResolvedRun run,
                           flags.Resolve(command, launch.size, names));
  std::string text;
  for (const train::KeyVerdict& verdict : run.verdicts) {
    text += Concat(OneField(verdict.key), "\t", train::FateName(verdict.fate), "\t",
                   OneField(verdict.reason), "\n");
  }
  bool behind_flag = false;
  for (const std::string& word : command.remaining()) {
    if (word.rfind("--", 0) != 0) {
      if (behind_flag) continue;  // an unknown flag's value
      return InvalidArgument("the argument '", word, "' was not expected");
    }
    behind_flag = true;
    std::string key = word.substr(2, word.find('=') - 2);
    std::replace(key.begin(), key.end(), '-', '_');
    text +=
        Concat(OneField(key), "\t", train::FateName(train::KeyFate::kRefused), "\tunknown key\n");
  }
  return WriteOut(text);
}

}  // namespace

void AddExplainCommand(CLI::App& app, CommandState& state) {
  CLI::App* command =
      app.add_subcommand("explain", "Say what becomes of each key of a configuration, and why");
  auto flags = std::make_shared<RunFlags>();
  flags->Add(command);
  command->allow_extras();  // an unknown flag gets its line, too
  command->footer(
      "Prints a line for each key that a file or a flag gives: the key, `honoured` (one of our\n"
      "own), `translated`, `no-effect` or `refused`, and the keys that it becomes or the reason,\n"
      "with tabs between. A `default` is a value that nobody gave, of the system whose names are\n"
      "used. Nothing is run; a refused key is listed like the others.\n"
      "Example:\n"
      "  tessera explain --deepspeed ds.json --learning_rate 3e-4 --push_to_hub");
  command->callback([command, flags, &state] {
    state.run = [command, flags, &state] { return RunExplain(*command, *flags, &state.names); };
  });
}

}  // namespace tessera::tools
