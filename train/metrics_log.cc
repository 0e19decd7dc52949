#include "train/metrics_log.h"

#include <set>
#include <sstream>
#include <utility>

#include "core/file.h"
#include "train/csv_file.h"
#include "train/event_file.h"

namespace tessera::train {
namespace {

using Row = nlohmann::ordered_json;

std::string RowsPath(const std::string& folder) { return JoinPath(folder, "metrics.jsonl"); }

std::string LineOf(const Row& row) { return row.dump() + "\n"; }

StatusOr<std::vector<Row>> RowsUpTo(const std::string& path, int64_t last_step) {
  std::vector<Row> rows;
  if (!PathExists(path)) return rows;
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Row row = Row::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) continue;
    if (row["step"].get<int64_t>() <= last_step) rows.push_back(std::move(row));
  }
  return rows;
}

StatusOr<std::unique_ptr<MetricsWriter>> OpenWriter(const std::string& name,
                                                    const std::string& folder) {
  if (name == "tensorboard") return EventFile::Open(folder);
  if (name == "csv") return CsvFile::Open(folder);
  return InvalidArgument("report_to '", name, "' is not known");
}

}  // namespace

StatusOr<MetricsLog> MetricsLog::Open(const std::string& folder, int64_t last_step,
                                      const std::vector<std::string>& report_to) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Row> kept, RowsUpTo(RowsPath(folder), last_step));
  std::string text;
  for (const Row& row : kept) text += LineOf(row);
  TESSERA_ASSIGN_OR_RETURN(AppendedFile file, AppendedFile::Create(RowsPath(folder), text));
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
  TESSERA_RETURN_IF_ERROR(file_.Append(LineOf(row)));
  for (const auto& writer : writers_) TESSERA_RETURN_IF_ERROR(writer->Append(row));
  return OkStatus();
}

}  // namespace tessera::train
