// SPDX-License-Identifier: Apache-2.0
// `tessera report`: runs as a page of charts.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/output_files.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/report/follow_server.h"
#include "tools/report/page.h"
#include "tools/report/run_record.h"

namespace tessera::tools {
namespace {

constexpr int kRefreshMs = 2000;

struct ReportFlags {
  std::vector<std::string> runs;
  std::string out;
  bool follow = false;
  int port = 0;
  bool overwrite = false;
};

StatusOr<std::string> PageOf(const ReportFlags& flags) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<report::RunRecord> runs, report::ReadRuns(flags.runs));
  return report::MakePage(runs, {.refresh_ms = flags.follow ? kRefreshMs : 0});
}

// Whether the page's head says that a report was written there.
bool IsReport(const std::string& path) {
  constexpr size_t kHead = 4096;
  const StatusOr<std::string> page = ReadFile(path);
  return page.ok() &&
         page->substr(0, kHead).find("content=\"tessera report\"") != std::string::npos;
}

Status WriteReport(const ReportFlags& flags) {
  const ClaimOptions claim = {
      .reads = flags.runs, .overwrite = flags.overwrite, .is_own = IsReport};
  std::optional<OutputLock> lock;
  TESSERA_RETURN_IF_ERROR(ClaimOutput(flags.out, claim, &lock));
  TESSERA_ASSIGN_OR_RETURN(const std::string page, PageOf(flags));
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(flags.out, page));
  return WriteOut(Concat("the report is in ", flags.out, "\n"));
}

Status FollowRuns(const ReportFlags& flags) {
  TESSERA_RETURN_IF_ERROR(PageOf(flags).status());  // what is wrong now is said here
  TESSERA_ASSIGN_OR_RETURN(report::FollowServer server, report::FollowServer::Listen(flags.port));
  TESSERA_RETURN_IF_ERROR(
      WriteOut(Concat("the report is at ", server.url(), "; Ctrl-C ends it\n")));
  return server.ServeUntilSignal([&] { return PageOf(flags); });
}

Status RunReport(const CLI::App& command, const ReportFlags& flags) {
  if (flags.runs.empty()) return InvalidArgument("report: a run's directory is missing");
  if (flags.follow != flags.out.empty()) {
    return InvalidArgument("report: either --out FILE or --follow is needed");
  }
  if (flags.follow && flags.overwrite) {
    return InvalidArgument("report: --overwrite means something with --out only");
  }
  if (!flags.follow && command.count("--port") > 0) {
    return InvalidArgument("report: --port means something with --follow only");
  }
  if (flags.port < 0 || flags.port > 65535) {
    return InvalidArgument("--port ", flags.port, " is no port: 0 (any) to 65535");
  }
  return flags.follow ? FollowRuns(flags) : WriteReport(flags);
}

}  // namespace

void AddReportCommand(CLI::App& app, CommandState& state) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* command =
      app.add_subcommand("report", "write a page of charts of runs, finished or in progress");
  command->add_option("runs", flags->runs, "directories of runs (--out of `train`)")
      ->type_name("RUN...");
  command->add_option("--out", flags->out, "the page: one HTML file that needs nothing else")
      ->type_name("FILE");
  command->add_flag("--follow", flags->follow,
                    "serve the page to this machine's browsers, and keep it up to date");
  command->add_option("--port", flags->port, "with --follow: the port; 0: any that is free")
      ->type_name("N");
  AddOverwriteFlag(command, &flags->overwrite);
  command->footer(
      "Examples:\n"
      "  tessera report runs/book --out book.html\n"
      "  tessera report runs/a runs/b runs/c --out compared.html\n"
      "  tessera report runs/book --follow");
  command->callback([command, flags, &state] {
    state.run = [command, flags] { return RunReport(*command, *flags); };
  });
}

}  // namespace tessera::tools
