// `<out>/metrics.jsonl`: one JSON object per line, numbers with all their digits.
//
//   TESSERA_ASSIGN_OR_RETURN(MetricsLog log, MetricsLog::Open(path, /*last_step=*/resumed_step));
//   TESSERA_RETURN_IF_ERROR(log.Append({{"step", 10}, {"loss", 3.25}}));
#ifndef TESSERA_TRAIN_METRICS_LOG_H_
#define TESSERA_TRAIN_METRICS_LOG_H_

#include <cstdint>
#include <string>

#include "core/status.h"
#include "nlohmann/json.hpp"

namespace tessera::train {

class MetricsLog {
 public:
  // Keeps the rows of an existing file up to `last_step` (a line that a killed run left unfinished
  // goes with the rest) and appends behind them.
  static StatusOr<MetricsLog> Open(const std::string& path, int64_t last_step);

  MetricsLog(MetricsLog&& other) noexcept;
  MetricsLog& operator=(MetricsLog&&) = delete;
  ~MetricsLog();

  // A row reaches the file at once.
  Status Append(const nlohmann::ordered_json& row);

 private:
  MetricsLog(std::string path, int descriptor);
  std::string path_;
  int descriptor_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_METRICS_LOG_H_
