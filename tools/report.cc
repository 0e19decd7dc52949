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
#include "tools/settings.h"

namespace tessera::tools {
namespace {

constexpr int kRefreshMs = 2000;

struct ReportFlags {
  std::vector<std::string> runs;
  std::string out;
  bool follow = false;
  int64_t port = 0;
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
  return WriteOutBeside(flags.out, Concat("the report is in ", flags.out, "\n"));
}

Status FollowRuns(const ReportFlags& flags) {
  TESSERA_RETURN_IF_ERROR(PageOf(flags).status());  // what is wrong now is said here
  TESSERA_ASSIGN_OR_RETURN(report::FollowServer server,
                           report::FollowServer::Listen(static_cast<int>(flags.port)));
  TESSERA_RETURN_IF_ERROR(
      WriteOut(Concat("the report is at ", server.url(), "; Ctrl-C ends it\n")));
  return server.ServeUntilSignal([&] { return PageOf(flags); });
}

Status RunReport(const CLI::App& command, ReportFlags flags) {
  flags.out = OutputPath(flags.out);
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
  return flags.follow ? FollowRuns(flags) : WriteReport(flags);
}

}  // namespace

void AddReportCommand(CLI::App& app, CommandState& state) {
  using F = ReportFlags;
  CLI::App* command =
      app.add_subcommand("report", "Write a page of charts of runs, finished or in progress");
  OptionTable table = OptionTable::Of<F>("Options");
  table.Add("runs", &F::runs, "directories of runs (--out of `train`)", {.type = "RUN..."})
      .Add("out", &F::out, "the page: one HTML file that needs nothing else; -: standard output",
           {.type = "FILE"})
      .Add("follow", &F::follow,
           "serve the page to this machine's browsers, and keep it up to date")
      .Add("port", &F::port, "with --follow: the port; 0: any that is free",
           {.least = 0, .most = 65535})
      .Add("overwrite", &F::overwrite, kOverwriteHelp);
  command->footer(
      "Examples:\n"
      "  tessera report runs/book --out book.html\n"
      "  tessera report runs/a runs/b runs/c --out compared.html\n"
      "  tessera report runs/book --follow");
  RunWith<F>(command, state, std::move(table), {.by_place = {"runs"}}, RunReport);
}

}  // namespace tessera::tools
