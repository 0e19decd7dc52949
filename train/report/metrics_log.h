// SPDX-License-Identifier: Apache-2.0
// `<out>/metrics.jsonl`: one JSON object per line, numbers with all their digits; and its rows in
// the forms that `report_to` asks for: `tensorboard` (train/report/event_file.h), `csv`
// (train/report/csv_file.h).
//
//   TESSERA_ASSIGN_OR_RETURN(MetricsLog log,
//                            MetricsLog::Open(out, /*last_step=*/resumed_step, {"tensorboard"}));
//   TESSERA_RETURN_IF_ERROR(log.Append({{"step", 10}, {"loss", 3.25}}));
#ifndef TESSERA_TRAIN_REPORT_METRICS_LOG_H_
#define TESSERA_TRAIN_REPORT_METRICS_LOG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"
#include "train/report/metrics_writer.h"
#include "train/report/row_file.h"

namespace tessera::train {

class MetricsLog {
 public:
  // Keeps the rows of an existing file up to `last_step` (train/report/row_file.h). The other forms
  // are made anew of these rows, so that they have each row once, however the run before ended.
  // `again`: RowFile's.
  static StatusOr<MetricsLog> Open(const std::string& folder, int64_t last_step,
                                   const std::vector<std::string>& report_to,
                                   const char* again = nullptr);
  MetricsLog(MetricsLog&&) noexcept;
  ~MetricsLog();
  // Removes the file and its other forms.
  static Status Remove(const std::string& folder);

  // A row reaches the files at once.
  Status Append(const nlohmann::ordered_json& row);

 private:
  explicit MetricsLog(RowFile file);

  RowFile file_;
  std::vector<std::unique_ptr<MetricsWriter>> writers_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_REPORT_METRICS_LOG_H_
