// SPDX-License-Identifier: Apache-2.0
#include "train/report/run_log.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "base/printable_text.h"
#include "base/status.h"
#include "dist/comm/agreement.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

constexpr auto kReplace = nlohmann::json::error_handler_t::replace;

std::vector<std::string> ParsedTexts(const std::string& json) {
  return ParseJson(json, "texts of a rank").value().get<std::vector<std::string>>();
}

}  // namespace

LogLevel ParseLogLevel(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

RunLog::RunLog(std::FILE* file, LogLevel level, std::string prefix, bool is_replica)
    : file_(file), level_(level), prefix_(std::move(prefix)), is_replica_(is_replica) {}

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
                prints ? "" : Concat("[", mesh.Describe(), "] "), !speaks);
}

std::vector<std::string> WarningsToSay(const std::vector<std::string>& mine,
                                       const dist::Mesh& mesh) {
  const std::vector<std::string> all =
      dist::GatherStrings(*mesh.world(), nlohmann::json(mine).dump(-1, ' ', false, kReplace));
  std::set<std::string> said;
  const auto take = [&](size_t rank) {
    std::vector<std::string> news;
    for (const std::string& line : ParsedTexts(all[rank])) {
      if (said.insert(line).second) news.push_back(line);
    }
    return news;
  };
  const auto me = static_cast<size_t>(mesh.world()->rank());
  std::vector<std::string> news = take(static_cast<size_t>(mesh.printing_rank()));
  if (mesh.prints()) return news;
  for (size_t rank = 0; rank <= me; ++rank) news = take(rank);
  return news;
}

}  // namespace tessera::train
