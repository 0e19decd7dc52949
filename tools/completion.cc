// SPDX-License-Identifier: Apache-2.0
// `tessera completion`: what bash completes, made of the commands' own flags.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/options.h"
#include "models/family.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/program.h"
#include "train/config/run_config.h"

namespace tessera::tools {
namespace {

// Commands are looked for before the cursor; one behind `launch` is the one that counts. A value
// may be behind a blank or an equals sign, which bash gives as a word of its own. Where nothing
// fits, bash completes files.
constexpr char kFunction[] =
    R"(  local word=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]}
  local command= flags= words= values= i
  if [[ $word == = ]]; then word=; elif [[ $flag == = ]]; then flag=${COMP_WORDS[COMP_CWORD-2]}; fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    [[ " $commands " == *" ${COMP_WORDS[i]} "* ]] || continue
    command=${COMP_WORDS[i]}
    [[ $command == launch ]] || break
  done
  if [[ " $groups " == *" $command "* ]] && ((i + 1 < COMP_CWORD)); then
    command+=" ${COMP_WORDS[i+1]}"
  fi
)";
constexpr char kReply[] = R"(  if [[ -n $values ]]; then
    words=$values
  elif [[ $word == -* ]]; then
    words=$flags
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [[ -n $values || $word == -* || -z $command ]] || { compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -f -- "$word")); }
)";

// What a flag's value may be; empty where that is no list.
std::vector<std::string> ChoicesOf(const CLI::Option& option) {
  if (option.get_lnames().empty()) return {};
  std::string key = option.get_lnames()[0];
  std::replace(key.begin(), key.end(), '-', '_');
  const Option* const known = train::FindRunConfigKey(key);
  return known == nullptr ? std::vector<std::string>() : known->notes.choices;
}

std::vector<std::string> Presets() {
  std::vector<std::string> names;
  for (const models::Family& family : models::Families()) {
    for (const models::Preset& preset : family.presets) names.push_back(preset.name);
  }
  return names;
}

std::string Words(const std::vector<std::string>& words) {
  return "'" + absl::StrJoin(words, " ") + "'";
}

std::vector<std::string> InnerCommands(const CLI::App& command) {
  std::vector<std::string> names;
  for (const auto& [name, inner] : CommandsOf(command)) names.push_back(name);
  return names;
}

std::string CaseOfCommand(const std::string& name, const CLI::App& command) {
  std::vector<std::string> flags;
  const std::vector<std::string> inner = InnerCommands(command);
  std::string choices, words = inner.empty() ? std::string() : Words(inner);
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;  // other systems' names
    if (option->get_positional()) {
      // Presets have no weights: they can be trained, and nothing else.
      const bool trains = name == "train" || name == "plan" || name == "explain";
      if (trains && option->get_name(true) == "model") words = Words(Presets());
      if (option->get_lnames().empty()) continue;
    }
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    const std::vector<std::string> values = ChoicesOf(*option);
    if (!values.empty())
      choices += Concat("        --", option->get_lnames()[0], ") values=", Words(values), " ;;\n");
  }
  std::string text = Concat("    '", name, "')\n      flags=", Words(flags), "\n");
  if (!words.empty()) text += Concat("      words=", words, "\n");
  if (!choices.empty()) text += Concat("      case $flag in\n", choices, "      esac\n");
  return text + "      ;;\n";
}

std::string Completion(const CLI::App& app) {
  std::vector<std::string> commands, groups;
  std::string cases;
  for (const auto& [name, command] : CommandsOf(app)) {
    if (name == command->get_name()) commands.push_back(name);
    if (!InnerCommands(*command).empty()) groups.push_back(name);
    cases += CaseOfCommand(name, *command);
  }
  std::vector<std::string> own_flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& flag : option->get_lnames()) own_flags.push_back("--" + flag);
  }
  const std::string name = app.get_name();
  return Concat("# Completion of `", name, "` in bash: source <(", name, " completion)\n_", name,
                "() {\n  local commands=", Words(commands), " groups=", Words(groups), "\n",
                kFunction,
                "  case $command in\n    '') words=\"$commands\" flags=", Words(own_flags), " ;;\n",
                cases, "  esac\n", kReply, "}\ncomplete -F _", name, " ", name, "\n");
}

}  // namespace

void AddCompletionCommand(CLI::App& app, CommandState& state) {
  CLI::App* command =
      app.add_subcommand("completion", "Print what bash needs to complete this program");
  command->footer("Example:\n  source <(tessera completion)");
  command->callback([&app, &state] { state.run = [&app] { return WriteOut(Completion(app)); }; });
}

}  // namespace tessera::tools
