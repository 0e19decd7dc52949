// SPDX-License-Identifier: Apache-2.0
#include "train/report/metrics_log.h"

#include <set>
#include <utility>

#include "base/file.h"
#include "nlohmann/json.hpp"
#include "train/report/csv_file.h"
#include "train/report/event_file.h"

namespace tessera::train {
namespace {

using Row = RowFile::Row;

std::string RowsPath(const std::string& folder) { return JoinPath(folder, "metrics.jsonl"); }

StatusOr<std::unique_ptr<MetricsWriter>> OpenWriter(const std::string& name,
                                                    const std::string& folder) {
  if (name == "tensorboard") return EventFile::Open(folder);
  if (name == "csv") return CsvFile::Open(folder);
  return InvalidArgument("report_to '", name, "' is not known");
}

}  // namespace

MetricsLog::MetricsLog(RowFile file) : file_(std::move(file)) {}

MetricsLog::MetricsLog(MetricsLog&&) noexcept = default;

MetricsLog::~MetricsLog() = default;

StatusOr<MetricsLog> MetricsLog::Open(const std::string& folder, int64_t last_step,
                                      const std::vector<std::string>& report_to,
                                      const char* again) {
  std::vector<Row> kept;
  TESSERA_ASSIGN_OR_RETURN(RowFile file, RowFile::Open(RowsPath(folder), last_step, &kept, again));
  MetricsLog log(std::move(file));
  for (const std::string& name : std::set<std::string>(report_to.begin(), report_to.end())) {
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<MetricsWriter> writer, OpenWriter(name, folder));
    for (const Row& row : kept) TESSERA_RETURN_IF_ERROR(writer->Append(row));
    log.writers_.push_back(std::move(writer));
  }
  return log;
}

Status MetricsLog::Remove(const std::string& folder) {
  TESSERA_RETURN_IF_ERROR(EventFile::Remove(folder));
  TESSERA_RETURN_IF_ERROR(CsvFile::Remove(folder));
  return RemoveAll(RowsPath(folder));
}

// The rows first: the other forms follow from them.
Status MetricsLog::Append(const Row& row) {
  TESSERA_RETURN_IF_ERROR(file_.Append(row));
  for (const auto& writer : writers_) TESSERA_RETURN_IF_ERROR(writer->Append(row));
  return OkStatus();
}

}  // namespace tessera::train
