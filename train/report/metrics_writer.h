// SPDX-License-Identifier: Apache-2.0
// Another form of the rows of `metrics.jsonl`. It holds nothing that the rows do not: every start
// of a run makes it anew from the rows that are kept (train/report/metrics_log.h).
#ifndef TESSERA_TRAIN_REPORT_METRICS_WRITER_H_
#define TESSERA_TRAIN_REPORT_METRICS_WRITER_H_

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::train {

class MetricsWriter {
 public:
  virtual ~MetricsWriter() = default;
  // A row reaches the file at once. What is no finite number is null in `metrics.jsonl`, so a
  // writer treats the two alike.
  virtual Status Append(const nlohmann::ordered_json& row) = 0;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_REPORT_METRICS_WRITER_H_
