// What a rank says besides its rows of metrics, by level.
//
//   RunLog log(stdout, LogLevel::kInfo);
//   log.Info("resuming from ...");
//   log.Warning("seed is now 1; ...");          // "warning: seed is now 1; ..."
//
// Rank by rank: the printing rank speaks at `log_level`, the others at `log_level_replica` and with
// their rank before each line (Hugging Face's names).
#ifndef TESSERA_TRAIN_RUN_LOG_H_
#define TESSERA_TRAIN_RUN_LOG_H_

#include <cstdio>
#include <string>

namespace tessera::train {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// One of "debug", "info", "warning", "error" (RunConfig::Validate has checked that).
LogLevel ParseLogLevel(const std::string& name);

class RunLog {
 public:
  // Null `file`: silent. `prefix` stands before every line.
  RunLog(std::FILE* file, LogLevel level, std::string prefix = "");

  void Debug(const std::string& text) const { Write(LogLevel::kDebug, text); }
  void Info(const std::string& text) const { Write(LogLevel::kInfo, text); }
  void Warning(const std::string& text) const { Write(LogLevel::kWarning, "warning: " + text); }

  // Where progress may be drawn; null below kInfo.
  std::FILE* progress() const {
    return level_ <= LogLevel::kInfo && prefix_.empty() ? file_ : nullptr;
  }

 private:
  void Write(LogLevel level, const std::string& text) const;

  std::FILE* file_;
  LogLevel level_;
  std::string prefix_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RUN_LOG_H_
