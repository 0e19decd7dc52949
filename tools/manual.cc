// SPDX-License-Identifier: Apache-2.0
// `tessera manual`: the manual page, made of what the commands say in their help.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/program.h"

namespace tessera::tools {
namespace {

// As troff shows it: its own signs and line beginnings are text.
std::string Text(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    line_begins = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string Line(std::string_view macro, std::string_view text) {
  return Concat(macro, " ", Text(text), "\n");
}

// "--num-nodes, --nnodes N".
std::string OptionHead(const CLI::Option& option) {
  if (option.get_positional() && option.get_lnames().empty()) {
    return absl::AsciiStrToUpper(option.get_name(/*positional=*/true));
  }
  const std::string names = absl::StrReplaceAll(
      option.get_name(/*positional=*/false, /*all_options=*/true), {{",", ", "}});
  const bool has_value = option.get_items_expected_max() > 0;
  return has_value ? names + " " + option.get_type_name() : names;
}

// The options of each section, where two sections of the same options stand once.
class Sections {
 public:
  std::string Of(const std::string& name, const CLI::App& command) {
    std::string text;
    for (const std::string& group : command.get_groups()) {
      std::string options;
      for (const CLI::Option* option : command.get_options()) {
        if (option->get_group() != group || group.empty()) continue;
        options += Line(".TP\n.B", OptionHead(*option)) + Text(option->get_description()) +
                   (option->get_required() ? " (required)\n" : "\n");
      }
      if (options.empty()) continue;
      const auto [known, is_new] = known_.emplace(group + "\n" + options, name);
      text += Line(".SS", group);
      text += is_new ? options : Text("As of " + known->second + ".\n");
    }
    return text;
  }

 private:
  std::map<std::string, std::string> known_;  // and the command where they stand
};

std::string Synopsis(const CLI::App& app, const std::string& name, const CLI::App& command) {
  std::string text = Concat(app.get_name(), " ", name);
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional())
      text += " [" + absl::AsciiStrToUpper(option->get_name(true)) + "]";
  }
  return text + " [OPTIONS]";
}

std::string Manual(const CLI::App& app) {
  std::string version = app.version();  // "tessera 0.5.0 (for ...)"
  version.resize(std::min(version.find(" ("), version.size()));
  std::string page =
      Concat(".TH ", absl::AsciiStrToUpper(app.get_name()), " 1 \"\" \"", version, "\"\n");
  page += Concat(".SH NAME\n", app.get_name(), " \\- ", Text(app.get_description()), "\n");
  page += ".SH SYNOPSIS\n" + Line(".B", app.get_name() + " COMMAND [OPTIONS]");
  page += ".SH COMMANDS\n";
  const std::vector<NamedCommand> commands = CommandsOf(app);
  for (const auto& [name, command] : commands) {
    page += Line(".TP\n.B", name) + Text(command->get_description()) + "\n";
  }
  Sections sections;
  page += ".SH OPTIONS\n" + sections.Of(app.get_name(), app);
  for (const auto& [name, command] : commands) {
    page += Line(".SH", absl::AsciiStrToUpper(name));
    page += Line(".B", Synopsis(app, name, *command));
    page += ".PP\n" + Text(command->get_description()) + "\n" + sections.Of(name, *command);
    page += ".PP\n.nf\n" + Text(command->get_footer()) + "\n.fi\n";
  }
  return page + Concat(".SH EXIT STATUS\n", Text(kExitCodes), "\n");
}

}  // namespace

void AddManualCommand(CLI::App& app, CommandState& state) {
  CLI::App* command =
      app.add_subcommand("manual", "Print the manual page of all commands, for man");
  command->footer("Example:\n  tessera manual | man -l -");
  command->callback([&app, &state] { state.run = [&app] { return WriteOut(Manual(app)); }; });
}

}  // namespace tessera::tools
