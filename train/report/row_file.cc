// SPDX-License-Identifier: Apache-2.0
#include "train/report/row_file.h"

#include <sstream>

#include "base/file.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

using Row = RowFile::Row;

// Texts may hold any bytes.
std::string LineOf(const Row& row) {
  return row.dump(-1, ' ', false, Row::error_handler_t::replace) + "\n";
}

StatusOr<std::vector<Row>> RowsUpTo(const std::string& path, int64_t last_step, const char* again) {
  std::vector<Row> rows;
  if (!PathExists(path)) return rows;
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Row row = Row::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) continue;
    const int64_t step = row["step"].get<int64_t>();
    const bool comes_again = step == last_step && again != nullptr && row.contains(again);
    if (step <= last_step && !comes_again) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

StatusOr<RowFile> RowFile::Open(const std::string& path, int64_t last_step, std::vector<Row>* kept,
                                const char* again) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<Row> rows, RowsUpTo(path, last_step, again));
  std::string text;
  for (const Row& row : rows) text += LineOf(row);
  TESSERA_ASSIGN_OR_RETURN(AppendedFile file, AppendedFile::Create(path, text));
  if (kept != nullptr) *kept = std::move(rows);
  return RowFile(std::move(file));
}

Status RowFile::Append(const Row& row) { return file_.Append(LineOf(row)); }

}  // namespace tessera::train
