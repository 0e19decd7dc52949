#include "train/run_log.h"

#include <utility>

#include "data/tokenizer/printable_text.h"

namespace tessera::train {

LogLevel ParseLogLevel(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

RunLog::RunLog(std::FILE* file, LogLevel level, std::string prefix)
    : file_(file), level_(level), prefix_(std::move(prefix)) {}

void RunLog::Write(LogLevel level, const std::string& text) const {
  if (file_ == nullptr || level < level_) return;
  const std::string line = prefix_ + data::PrintableText(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), file_);  // one write: lines of ranks do not mix
  std::fflush(file_);
}

}  // namespace tessera::train
