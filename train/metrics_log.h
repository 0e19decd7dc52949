// `<out>/metrics.jsonl`: one JSON object per line, numbers with all their digits.
//
//   TESSERA_ASSIGN_OR_RETURN(MetricsLog log,
//                            MetricsLog::Open(path, {.step = 30, .evaluated_step = 20}));
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
  // What a run has behind it; -1: nothing.
  struct Past {
    int64_t step = -1;
    int64_t evaluated_step = -1;
  };
  // Keeps the rows of an existing file that belong to the past: up to `step`, those with
  // `val_loss` up to `evaluated_step`. A line that a killed run left unfinished goes with the rest.
  // Appends behind them.
  static absl::StatusOr<MetricsLog> Open(const std::string& path, const Past& past);

  MetricsLog(MetricsLog&& other) noexcept;
  MetricsLog& operator=(MetricsLog&&) = delete;
  ~MetricsLog();

  // A row reaches the file at once.
  absl::Status Append(const nlohmann::ordered_json& row);

 private:
  MetricsLog(std::string path, int descriptor);
  std::string path_;
  int descriptor_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_METRICS_LOG_H_
