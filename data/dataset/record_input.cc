// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/record_input.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <string_view>

#include "base/file.h"
#include "base/nearest_name.h"
#include "data/dataset/csv_rows.h"
#include "data/dataset/json_records.h"
#include "data/dataset/text_file.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> SplitTabs(std::string_view line) {
  std::vector<std::string> fields;
  while (true) {
    const size_t tab = line.find('\t');
    fields.emplace_back(line.substr(0, tab));
    if (tab == std::string_view::npos) return fields;
    line.remove_prefix(tab + 1);
  }
}

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// The lines of a text, numbered from 1, without their ends.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}
  bool Next(std::string_view* line) {
    if (text_.empty()) return false;
    const size_t end = std::min(text_.find('\n'), text_.size());
    *line = text_.substr(0, end);
    if (line->ends_with('\r')) line->remove_suffix(1);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    ++number_;
    return true;
  }
  int64_t number() const { return number_; }

 private:
  std::string_view text_;
  int64_t number_ = 0;
};

// The rows of a table with a header line.
class Rows {
 public:
  virtual ~Rows() = default;
  // False at the end.
  virtual StatusOr<bool> Next(std::vector<std::string>* fields) = 0;
  // Of the last row.
  virtual int64_t line() const = 0;
};

class TabbedRows final : public Rows {
 public:
  explicit TabbedRows(std::string_view text) : lines_(text) {}
  StatusOr<bool> Next(std::vector<std::string>* fields) override {
    std::string_view line;
    do {
      if (!lines_.Next(&line)) return false;
    } while (IsBlank(line));
    *fields = SplitTabs(line);
    return true;
  }
  int64_t line() const override { return lines_.number(); }

 private:
  Lines lines_;
};

class CommaRows final : public Rows {
 public:
  CommaRows(std::string_view text, const std::string& path) : rows_(text, path) {}
  StatusOr<bool> Next(std::vector<std::string>* fields) override { return rows_.Next(fields); }
  int64_t line() const override { return rows_.line(); }

 private:
  CsvRows rows_;
};

Status CheckFormat(const std::string& path) {
  if (IsTable(path)) return OkStatus();
  return InvalidArgument(
      path, ": a table must be .tsv or .csv (with a header line), .jsonl, .ndjson or .json");
}

std::unique_ptr<Rows> RowsOf(const std::string& path, std::string_view text) {
  if (EndsInOneOf(path, {".csv"})) return std::make_unique<CommaRows>(text, path);
  return std::make_unique<TabbedRows>(text);
}

Status NoColumn(const std::string& where, const std::string& name,
                const std::vector<std::string>& known) {
  std::string list;
  for (const std::string& column : known) list += (list.empty() ? "" : ", ") + column;
  return InvalidArgument(where, ": no column '", name, "'", DidYouMean(name, known),
                         "; there are: ", list);
}

Status VisitTable(const std::string& path, std::string_view text,
                  const std::vector<std::string>& columns, const RecordVisitor& visit) {
  const std::unique_ptr<Rows> rows = RowsOf(path, text);
  std::vector<std::string> header;
  TESSERA_ASSIGN_OR_RETURN(const bool any, rows->Next(&header));
  if (!any) return InvalidArgument(path, ": empty; a header line is needed");
  std::vector<size_t> places;
  for (const std::string& column : columns) {
    const auto found = std::find(header.begin(), header.end(), column);
    if (found == header.end()) return NoColumn(path, column, header);
    if (std::find(found + 1, header.end(), column) != header.end()) {
      return InvalidArgument(path, ": the header has column '", column, "' twice");
    }
    places.push_back(static_cast<size_t>(found - header.begin()));
  }
  std::vector<std::string> fields;
  std::vector<std::string> picked(columns.size());
  for (;;) {
    TESSERA_ASSIGN_OR_RETURN(const bool more, rows->Next(&fields));
    if (!more) return OkStatus();
    const std::string where = Concat(path, ":", rows->line());
    if (fields.size() != header.size()) {
      return InvalidArgument(where, ": ", fields.size(), " fields, the header has ", header.size());
    }
    for (size_t i = 0; i < places.size(); ++i) picked[i] = fields[places[i]];
    TESSERA_RETURN_IF_ERROR(visit(picked, where));
  }
}

std::vector<std::string> NamesIn(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

Status VisitObjects(const std::string& path, std::string_view text,
                    const std::vector<std::string>& columns, const RecordVisitor& visit) {
  std::vector<std::string> picked(columns.size());
  return ForEachJsonRecord(path, text, [&](const Json& object, const std::string& where) -> Status {
    for (size_t i = 0; i < columns.size(); ++i) {
      const auto member = object.find(columns[i]);
      if (member == object.end()) return NoColumn(where, columns[i], NamesIn(object));
      if (member->is_structured() || member->is_null()) {
        return InvalidArgument(where, ": \"", columns[i],
                               "\" must be text, a number or a truth value");
      }
      picked[i] = member->is_string() ? member->get<std::string>() : member->dump();
    }
    return visit(picked, where);
  });
}

}  // namespace

bool IsTable(const std::string& path) {
  return EndsInOneOf(path, {".tsv", ".csv", ".jsonl", ".ndjson", ".json"});
}

bool HasHeader(const std::string& path) { return EndsInOneOf(path, {".tsv", ".csv"}); }

bool IsIndexColumn(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array kNames = {"", "id", "idx", "index", "guid", "uid", "uuid", "row"};
  return std::find(kNames.begin(), kNames.end(), lower) != kNames.end() || lower.ends_with("_id") ||
         lower.ends_with("_idx") || lower.starts_with("unnamed: ") ||
         (lower.starts_with("__index_level_") && lower.ends_with("__"));
}

StatusOr<std::vector<std::string>> ColumnsOf(const std::string& path) {
  TESSERA_RETURN_IF_ERROR(CheckFormat(path));
  TESSERA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  TESSERA_ASSIGN_OR_RETURN(const std::string_view text, TextIn(BytesOf(file), path));
  std::vector<std::string> names;
  if (HasHeader(path)) {
    TESSERA_RETURN_IF_ERROR(RowsOf(path, text)->Next(&names).status());
  } else {
    const Status first =
        ForEachJsonRecord(path, text, [&](const Json& object, const std::string&) -> Status {
          names = NamesIn(object);
          return Failure(StatusCode::kCancelled, "the first is enough");
        });
    if (first.code() != StatusCode::kCancelled) TESSERA_RETURN_IF_ERROR(first);
  }
  if (names.empty()) return InvalidArgument(path, ": no records there");
  return names;
}

Status ForEachRecord(const std::string& path, const std::vector<std::string>& columns,
                     const RecordVisitor& visit) {
  for (auto column = columns.begin(); column != columns.end(); ++column) {
    if (std::find(columns.begin(), column, *column) == column) continue;
    return InvalidArgument(path, ": column '", *column, "' is asked for twice");
  }
  TESSERA_RETURN_IF_ERROR(CheckFormat(path));
  TESSERA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  TESSERA_ASSIGN_OR_RETURN(const std::string_view text, TextIn(BytesOf(file), path));
  return HasHeader(path) ? VisitTable(path, text, columns, visit)
                         : VisitObjects(path, text, columns, visit);
}

}  // namespace tessera::data
