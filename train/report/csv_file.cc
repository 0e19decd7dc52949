// SPDX-License-Identifier: Apache-2.0
#include "train/report/csv_file.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

using Json = nlohmann::ordered_json;

std::string PathIn(const std::string& folder) { return JoinPath(folder, "metrics.csv"); }

// A text as JSON writes it has no line breaks: a row is a line.
std::string Quoted(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (value.is_string()) text = text.substr(1, text.size() - 2);
  if (text.find_first_of(",\"") == std::string::npos) return text;
  return "\"" + absl::StrReplaceAll(text, {{"\"", "\"\""}}) + "\"";
}

// Numbers that are not finite are dumped as null.
std::string CellOf(const Json& value) {
  const std::string cell = Quoted(value);
  return cell == "null" && !value.is_string() ? "nan" : cell;
}

std::string HeaderOf(const std::vector<std::string>& columns) {
  std::string line;
  for (const std::string& name : columns) line += (line.empty() ? "" : ",") + Quoted(name);
  return line + "\n";
}

}  // namespace

StatusOr<std::unique_ptr<MetricsWriter>> CsvFile::Open(const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(AppendedFile file, AppendedFile::Create(PathIn(folder), ""));
  return std::unique_ptr<MetricsWriter>(new CsvFile(std::move(file)));
}

Status CsvFile::Remove(const std::string& folder) { return RemoveAll(PathIn(folder)); }

// The lines before get an empty cell for each.
Status CsvFile::AddColumns(const std::vector<std::string>& names) {
  TESSERA_ASSIGN_OR_RETURN(const std::string before, ReadFile(file_.path()));
  columns_.insert(columns_.end(), names.begin(), names.end());
  std::string text = HeaderOf(columns_);
  std::istringstream lines(before);
  std::string line;
  std::getline(lines, line);  // the header
  while (std::getline(lines, line)) text += line + std::string(names.size(), ',') + "\n";
  TESSERA_ASSIGN_OR_RETURN(file_, AppendedFile::Create(file_.path(), text));
  return OkStatus();
}

Status CsvFile::Append(const Json& row) {
  std::vector<std::string> unknown;
  for (const auto& [name, value] : row.items()) {
    if (std::find(columns_.begin(), columns_.end(), name) == columns_.end()) {
      unknown.push_back(name);
    }
  }
  if (!unknown.empty()) TESSERA_RETURN_IF_ERROR(AddColumns(unknown));
  std::string line;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (i > 0) line += ',';
    if (row.contains(columns_[i])) line += CellOf(row[columns_[i]]);
  }
  return file_.Append(line + "\n");
}

}  // namespace tessera::train
