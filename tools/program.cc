// SPDX-License-Identifier: Apache-2.0
#include "tools/program.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "core/cpu_amx.h"
#include "core/cpu_isa.h"
#include "dist/comm/launch_environment.h"
#include "dist/comm/world.h"
#include "dist/mesh/mesh.h"
#include "nlohmann/json.hpp"
#include "runtime/tessera.h"
#include "tools/before_main.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/field_flags.h"
#include "tools/gpus.h"
#include "tools/libraries/loaded_libraries.h"
#include "tools/libraries/spdx.h"
#include "tools/libraries/version_report.h"
#include "train/ranks/agreement.h"
#include "train/ranks/run_on_ranks.h"

namespace tessera::tools {
namespace {

#ifdef NDEBUG
constexpr char kBuild[] = "optimised";
#else
constexpr char kBuild[] = "not optimised";
#endif
#ifdef __clang__
constexpr char kCompiler[] = __VERSION__;  // "Clang 14.0.6"
#else
constexpr char kCompiler[] = "g++ " __VERSION__;
#endif

struct Command {
  std::string_view name;
  void (*add)(CLI::App& app, CommandState& state);
  bool knows_others = false;  // works with the flags of the others
  bool has_ranks = false;     // which begin by agreeing on what they were told
  NextValue (*goes_on)(const std::string& flag, const std::string& word, bool named) = GoesOnList;
};

constexpr Command kCommands[] = {
    {"train", AddTrainCommand, /*knows_others=*/false, /*has_ranks=*/true},
    {"generate", AddGenerateCommand},
    {"serve", AddServeCommand},
    {"eval", AddEvalCommand},
    {"predict", AddPredictCommand},
    {"embed", AddEmbedCommand},
    {"rerank", AddRerankCommand},
    {"plan", AddPlanCommand},
    {"explain", AddExplainCommand},
    {"models", AddModelsCommand},
    {"forward", AddForwardCommand},
    {"tokenize", AddTokenizeCommand},
    {"train-tokenizer", AddTrainTokenizerCommand},
    {"corpus", AddCorpusCommand, /*knows_others=*/false, /*has_ranks=*/true, CorpusGoesOnList},
    {"inspect", AddInspectCommand},
    {"report", AddReportCommand},
    {"replay", AddReplayCommand},
    {"diff", AddDiffCommand},
    {"convert", AddConvertCommand},
    {"merge", AddMergeCommand},
    {"quantize", AddQuantizeCommand},
    {"launch", AddLaunchCommand, /*knows_others=*/true},
    {"completion", AddCompletionCommand, /*knows_others=*/true},
    {"manual", AddManualCommand, /*knows_others=*/true},
};

const Command* Asked(const std::vector<std::string>& arguments) {
  const auto* const asked = std::find_if(
      std::begin(kCommands), std::end(kCommands),
      [&](const Command& command) { return !arguments.empty() && command.name == arguments[0]; });
  return asked == std::end(kCommands) ? nullptr : asked;
}

// The command that is asked for is enough, if it is one: the flags of all of them take longer to
// make than many a command needs.
void AddCommands(CLI::App& app, CommandState& state, const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments[0] == "--version") return;
  const Command* const asked = Asked(arguments);
  if (asked != nullptr && !asked->knows_others) return asked->add(app, state);
  for (const Command& command : kCommands) command.add(app, state);
}

std::string SetName(CpuIsa isa, bool amx) {
  return Concat(CpuIsaName(isa), amx ? " with AMX" : "");
}

// `--version` by itself says one line.
void AddVersionFlags(CLI::App& app) {
  CLI::Option* const version = app.set_version_flag(
      "--version",
      Concat("tessera ", TSR_VERSION, " (for ", BuiltFor(), ", ", kBuild, " by ", kCompiler, ")"),
      "print the version and exit");
  const auto add = [&](const char* flag, const std::string& help) {
    app.add_flag(flag, help)->needs(version);
  };
  add("--verbose", "every library, with its version and licence");
  add("--json", "that as one JSON object");
  add("--sbom", "that as a bill of materials (SPDX 2.3)");
}

Status PrintVersion(const CLI::App& app, const std::string& line) {
  const auto given = [&](const char* flag) { return app.get_option(flag)->count() > 0; };
  const bool json = given("--json"), sbom = given("--sbom");
  if (!json && !sbom && !given("--verbose")) return WriteOut(line + "\n");
  const std::vector<ListedLibrary> libraries = ListLibraries();
  if (sbom) {
    TESSERA_ASSIGN_OR_RETURN(const int64_t created,
                             CreationTime(std::getenv("SOURCE_DATE_EPOCH"), std::time(nullptr)));
    return WriteOut(SpdxDocument(TSR_VERSION, created, libraries).dump(2) + "\n");
  }
  const BuildFacts facts = {.version = TSR_VERSION,
                            .compiler = kCompiler,
                            .build = kBuild,
                            .built_for = BuiltFor(),
                            .instruction_set = SetName(ActiveIsa(), ActiveAmx()),
                            .best_set = SetName(DetectedIsa(), HasAmx())};
  return WriteOut(json ? VersionJson(facts, libraries).dump() + "\n"
                       : VersionText(facts, libraries));
}

// What CLI11 says of a command line; it calls by its flag what usage shows by its place.
std::string InOurWords(const CLI::App& command, const CLI::ParseError& error) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional() && error.what() == option->get_name() + " is required") {
      return option->get_name(true) + " is required";
    }
  }
  return error.what();
}

// Reads the command line into `state`; help is printed here and leaves nothing to run.
Status Parse(CLI::App& app, CommandState& state, const std::vector<std::string>& arguments) {
  const Command* const asked = Asked(arguments);
  TESSERA_ASSIGN_OR_RETURN(
      std::vector<std::string> normal,
      NormaliseArguments(app, arguments, asked == nullptr ? GoesOnList : asked->goes_on,
                         &state.names));
  try {
    std::reverse(normal.begin(), normal.end());
    app.parse(std::move(normal));
  } catch (const CLI::CallForHelp&) {
    state.run = nullptr;
    return WriteOut(WrappedHelp(app.help()));
  } catch (const CLI::CallForVersion& version) {
    state.run = nullptr;
    return PrintVersion(app, version.what());
  } catch (const CLI::ParseError& error) {
    const bool inner = !app.get_subcommands().empty();
    const CLI::App& command = inner ? *app.get_subcommands()[0] : app;
    return InvalidArgument(InOurWords(command, error), " (see `", app.get_name(), " ",
                           inner ? command.get_name() + " " : std::string(), "--help`)");
  }
  return OkStatus();
}

// What is wrong with a command line that all ranks have, one of them says.
Status OfAllRanks(const Command* asked, const Status& wrong) {
  if (asked == nullptr || !asked->has_ranks) return wrong;
  const StatusOr<dist::LaunchEnvironment> launch = dist::ReadLaunchEnvironment(std::getenv);
  if (!launch.ok() || launch->size == 1) return wrong;
  const StatusOr<dist::World> world = dist::OpenWorld({});
  if (!world.ok()) return wrong;
  return train::RunOnRanks(
      *world, [&] { return train::Agree(dist::Mesh(world->communicator, {}), wrong); });
}

Status Run(const Program& program, const std::vector<std::string>& arguments) {
  TESSERA_RETURN_IF_ERROR(CheckIsaEnvironment());
  TESSERA_RETURN_IF_ERROR(CheckAmxEnvironment());
  CLI::App app(program.description, program.name);
  app.footer(Concat("`", program.name, " COMMAND --help` explains a command."));
  AddVersionFlags(app);
  CommandState state = {.program = &program, .arguments = arguments};
  AddCommands(app, state, arguments);
  const Status parsed = state.names.In(Parse(app, state, arguments));
  if (!parsed.ok()) return OfAllRanks(Asked(arguments), parsed);
  return state.run ? state.names.In(state.run()) : OkStatus();
}

// A file of ours that is opened must never be standard input, output or error: what is printed
// would be written into it. Input that was closed is empty, output that was closed is lost.
void OpenStandardDescriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest that is free is this one.
    if (open("/dev/null", descriptor == 0 ? O_RDONLY : O_WRONLY) < 0) return;
  }
}

// glibc reserves 64 MiB of address space for each thread's arena, and maps every block of a thread
// that gets none by itself, which made a server under a narrow `ulimit -v` 15 times slower. There
// all threads share one arena.
void ShareArenaInNarrowSpace() {
  constexpr rlim_t kNarrow = rlim_t{4} << 30;
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < kNarrow) mallopt(M_ARENA_MAX, 1);
}

std::terminate_handler terminate_before;

// An exception that nobody catches. Without memory that is one from before main, from a thread of a
// library, or from the report of another failure: it is reported as any other, and no core is
// written. Nothing here takes memory.
[[noreturn]] void OnTerminate() {
  if (std::current_exception() != nullptr) {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      constexpr std::string_view kLine = "error: out of memory\n";
      static_cast<void>(!write(STDERR_FILENO, kLine.data(), kLine.size()));
      _exit(1);
    } catch (...) {
      terminate_before();
    }
  }
  terminate_before();
  std::abort();
}

}  // namespace

// Before all that is made before main: the registries there take memory.
[[gnu::constructor(101)]] void ReportWhatNobodyCatches() {
  if (terminate_before == nullptr) terminate_before = std::set_terminate(OnTerminate);
}

}  // namespace tessera::tools

namespace tessera {

int Main(int argc, char** argv, const tools::Program& program) {
  tools::OpenStandardDescriptors();
  tools::ShareArenaInNarrowSpace();
  // Writing too much, or to nobody, is then an error of the write.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  EndWhenMappedFilesShrink();
  return train::ReportFailure(train::Guarded([&] {
    return tools::Run(program, {argv + (argc > 0 ? 1 : 0), argv + argc});
  }));
}

}  // namespace tessera
