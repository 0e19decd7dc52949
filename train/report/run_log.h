// SPDX-License-Identifier: Apache-2.0
// What a rank says besides its rows of metrics, by level.
//
//   RunLog log(stdout, LogLevel::kInfo);
//   log.Info("resuming from ...");
//   log.Warning("seed is now 1; ...");          // "warning: seed is now 1; ..."
//
// Rank by rank: the printing rank speaks at `log_level`, with `log_on_each_node` also the first
// rank of every other host, and the rest at `log_level_replica`; all but the printing rank put
// their rank before each line (Hugging Face's names). A warning that all ranks have is not the
// replicas' to say: it appears once.
#ifndef TESSERA_TRAIN_REPORT_RUN_LOG_H_
#define TESSERA_TRAIN_REPORT_RUN_LOG_H_

#include <cstdio>
#include <string>
#include <vector>

#include "dist/mesh/mesh.h"
#include "train/config/report_config.h"

namespace tessera::train {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// One of "debug", "info", "warning", "error" (RunConfig::Validate has checked that).
LogLevel ParseLogLevel(const std::string& name);

class RunLog {
 public:
  // Null `file`: silent. `prefix` is before every line. `is_replica`: another rank speaks for all.
  RunLog(std::FILE* file, LogLevel level, std::string prefix = "", bool is_replica = false);

  void Debug(const std::string& text) const { Write(LogLevel::kDebug, text); }
  void Info(const std::string& text) const { Write(LogLevel::kInfo, text); }
  // Of what is the same on all ranks.
  void Warning(const std::string& text) const {
    if (!is_replica_) OwnWarning(text);
  }
  // Of what only this rank may have.
  void OwnWarning(const std::string& text) const { Write(LogLevel::kWarning, "warning: " + text); }

  // Whether a line of this level is written.
  bool Says(LogLevel level) const { return file_ != nullptr && level >= level_; }
  // What is before every line.
  const std::string& prefix() const { return prefix_; }

  // Where progress may be drawn; null below kInfo.
  std::FILE* progress() const {
    return level_ <= LogLevel::kInfo && prefix_.empty() ? file_ : nullptr;
  }

 private:
  void Write(LogLevel level, const std::string& text) const;

  std::FILE* file_;
  LogLevel level_;
  std::string prefix_;
  bool is_replica_;
};

// This rank's, which writes to `file`. `host` is what ranks on the same machine have in common.
// Collective over the mesh's world.
RunLog OpenRunLog(const ReportConfig& config, const dist::Mesh& mesh, std::FILE* file,
                  const std::string& host);

// Of the warnings of all ranks, each once, those that this rank says: all of its own on the
// printing rank, elsewhere those that neither the printing rank nor a lower one has. Collective
// over the mesh's world.
std::vector<std::string> WarningsToSay(const std::vector<std::string>& mine,
                                       const dist::Mesh& mesh);

// The name of this machine.
std::string HostName();

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_REPORT_RUN_LOG_H_
