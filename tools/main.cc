// The `tessera` program.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "core/cpu_isa.h"
#include "core/file.h"
#include "core/status.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/gpus.h"

namespace tessera::tools {
namespace {

// Of CHANGELOG.md.
constexpr char kVersion[] = "0.4.0";
#ifdef NDEBUG
constexpr char kCompiler[] = "optimised by g++ " __VERSION__;
#else
constexpr char kCompiler[] = "not optimised, by g++ " __VERSION__;
#endif

void AddCommands(CLI::App& app, CommandState& state) {
  AddTrainCommand(app, state);
  AddGenerateCommand(app, state);
  AddEvalCommand(app, state);
  AddExplainCommand(app, state);
  AddModelsCommand(app, state);
  AddForwardCommand(app, state);
  AddTokenizeCommand(app, state);
  AddTrainTokenizerCommand(app, state);
  AddInspectCommand(app, state);
  AddConvertCommand(app, state);
  AddLaunchCommand(app, state);
}

// Reads the command line into `state`; help is printed here and leaves nothing to run.
Status Parse(CLI::App& app, CommandState& state, const std::vector<std::string>& arguments) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> normal, NormaliseArguments(app, arguments));
  try {
    std::reverse(normal.begin(), normal.end());
    app.parse(std::move(normal));
  } catch (const CLI::CallForHelp&) {
    state.run = nullptr;
    return WriteOut(app.help());
  } catch (const CLI::CallForVersion& version) {
    state.run = nullptr;
    return WriteOut(Concat(version.what(), "\n"));
  } catch (const CLI::ParseError& error) {
    return InvalidArgument(
        error.what(), " (see `tessera ",
        app.get_subcommands().empty() ? std::string() : app.get_subcommands()[0]->get_name() + " ",
        "--help`)");
  }
  return OkStatus();
}

Status RunProgram(const std::vector<std::string>& arguments) {
  TESSERA_RETURN_IF_ERROR(CheckIsaEnvironment());
  CLI::App app("Tessera: trains and runs transformers.", "tessera");
  app.footer("`tessera COMMAND --help` explains a command.");
  app.set_version_flag("--version",
                       Concat("tessera ", kVersion, " (for ", BuiltFor(), ", ", kCompiler, ")"));
  CommandState state;
  AddCommands(app, state);
  TESSERA_RETURN_IF_ERROR(Parse(app, state, arguments));
  return state.run ? state.run() : OkStatus();
}

}  // namespace
}  // namespace tessera::tools

int main(int argc, char** argv) {
  // Writing too much, or to nobody, is then an error of the write.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  tessera::EndWhenMappedFilesShrink();
  const tessera::Status status = tessera::tools::Guarded([&] {
    return tessera::tools::RunProgram({argv + (argc > 0 ? 1 : 0), argv + argc});
  });
  return tessera::tools::ReportFailure(status);
}
