// SPDX-License-Identifier: Apache-2.0
// The settings of a command: a struct whose fields a table declares (base/options.h), as flags.
//
//   struct ReportFlags {
//     std::vector<std::string> runs;
//     int64_t port = 0;
//   };
//   OptionTable table = OptionTable::Of<ReportFlags>("Options");
//   table.Add("runs", &ReportFlags::runs, "directories of runs", {.type = "RUN..."})
//       .Add("port", &ReportFlags::port, "the port; 0: any that is free", {.most = 65535});
//   RunWith<ReportFlags>(command, state, std::move(table), {.by_place = {"runs"}},
//                        [](const CLI::App&, const ReportFlags& flags) { return Report(flags); });
#ifndef TESSERA_TOOLS_SETTINGS_H_
#define TESSERA_TOOLS_SETTINGS_H_

#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "base/options.h"
#include "base/status.h"
#include "tools/commands.h"
#include "tools/field_flags.h"

namespace tessera::tools {

template <typename S>
class Settings {
 public:
  // Adds the flags. The command must outlive this object, and this object the parsing.
  Settings(CLI::App* command, OptionTable table, const FlagForms& forms = {})
      : command_(*command), table_(std::move(table)) {
    for (const Option& option : table_.options()) flags_.Add(command, option, forms);
  }
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;

  // The defaults with what the command line gives; a value out of range is refused by its flag.
  StatusOr<S> Read() const {
    S settings;
    TESSERA_RETURN_IF_ERROR(flags_.Read(command_, &settings));
    return settings;
  }

 private:
  const CLI::App& command_;
  const OptionTable table_;
  FieldFlags flags_;
};

// The command's flags are those of `table`; `run` is called with the command and its settings.
template <typename S, typename Run>
void RunWith(CLI::App* command, CommandState& state, OptionTable table, const FlagForms& forms,
             Run run) {
  auto settings = std::make_shared<Settings<S>>(command, std::move(table), forms);
  command->callback([command, &state, settings, run] {
    state.run = [command, settings, run]() -> Status {
      TESSERA_ASSIGN_OR_RETURN(const S given, settings->Read());
      return run(*command, given);
    };
  });
}

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_SETTINGS_H_
