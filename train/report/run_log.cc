// SPDX-License-Identifier: Apache-2.0
#include "train/report/run_log.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/printable_text.h"
#include "base/status.h"
#include "dist/comm/agreement.h"

namespace tessera::train {

LogLevel ParseLogLevel(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

RunLog::RunLog(std::FILE* file, LogLevel level, std::string prefix)
    : file_(file), level_(level), prefix_(std::move(prefix)) {}

void RunLog::Write(LogLevel level, const std::string& text) const {
  if (!Says(level)) return;
  const std::string line = prefix_ + PrintableText(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), file_);  // one write: lines of ranks do not mix
  std::fflush(file_);
}

std::string HostName() {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  return host;
}

RunLog OpenRunLog(const ReportConfig& config, const dist::Mesh& mesh, std::FILE* file,
                  const std::string& host) {
  const bool prints = mesh.prints();
  bool speaks = prints;
  if (config.log_on_each_node) {
    const std::vector<std::string> hosts = dist::GatherStrings(*mesh.world(), host);
    const auto first = std::find(hosts.begin(), hosts.end(), host) - hosts.begin();
    const std::string& printing = hosts[static_cast<size_t>(mesh.printing_rank())];
    speaks = prints || (host != printing && first == mesh.world()->rank());
  }
  return RunLog(file, ParseLogLevel(speaks ? config.log_level : config.log_level_replica),
                prints ? "" : Concat("[", mesh.Describe(), "] "));
}

}  // namespace tessera::train
