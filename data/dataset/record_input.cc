// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/record_input.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <string_view>

#include "base/file.h"
#include "base/nearest_name.h"
#include "base/utf8.h"
#include "data/columns/column_json.h"
#include "data/columns/open_table.h"
#include "data/dataset/byte_source.h"
#include "data/dataset/csv_rows.h"
#include "data/dataset/data_folder.h"
#include "data/dataset/json_records.h"
#include "data/dataset/text_file.h"
#include "data/dataset/text_pieces.h"
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
  explicit TabbedRows(TextPieces* pieces) : lines_(pieces) {}
  StatusOr<bool> Next(std::vector<std::string>* fields) override {
    std::string_view line;
    do {
      TESSERA_ASSIGN_OR_RETURN(const bool more, lines_.Next(&line));
      if (!more) return false;
    } while (IsBlank(line));
    *fields = SplitTabs(line);
    return true;
  }
  int64_t line() const override { return lines_.number(); }

 private:
  TextLinesOf lines_;
};

class CommaRows final : public Rows {
 public:
  CommaRows(TextPieces* pieces, const std::string& path) : rows_(pieces, path) {}
  StatusOr<bool> Next(std::vector<std::string>* fields) override { return rows_.Next(fields); }
  int64_t line() const override { return rows_.line(); }

 private:
  CsvRows rows_;
};

Status CheckFormat(const std::string& path) {
  if (IsTable(path)) return OkStatus();
  return InvalidArgument(
      path,
      ": a table must be .tsv or .csv (with a header line), .jsonl, .ndjson or .json, each perhaps "
      ".gz or .zst, .parquet or .arrow");
}

std::unique_ptr<Rows> RowsOf(const std::string& path, TextPieces* pieces) {
  if (EndsInOneOf(WithoutCompression(path), {".csv"})) {
    return std::make_unique<CommaRows>(pieces, path);
  }
  return std::make_unique<TabbedRows>(pieces);
}

Status NoColumn(const std::string& where, const std::string& name,
                const std::vector<std::string>& known) {
  std::string list;
  for (const std::string& column : known) list += (list.empty() ? "" : ", ") + column;
  return InvalidArgument(where, ": no column '", name, "'", DidYouMean(name, known),
                         "; there are: ", list);
}

Status VisitTable(const std::string& path, const std::vector<std::string>& columns,
                  const RecordVisitor& visit) {
  TESSERA_ASSIGN_OR_RETURN(TextPieces pieces, TextPieces::Open(path));
  const std::unique_ptr<Rows> rows = RowsOf(path, &pieces);
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

// A member by its name, or one within it: "translation.en". nullptr: there is none.
const Json* MemberAt(const Json& object, const std::string& name) {
  if (const auto member = object.find(name); member != object.end()) return &*member;
  const size_t dot = name.find('.');
  if (dot == std::string::npos) return nullptr;
  const auto outer = object.find(name.substr(0, dot));
  if (outer == object.end() || !outer->is_object()) return nullptr;
  return MemberAt(*outer, name.substr(dot + 1));
}

Status NoText(const std::string& where, const std::string& column, const std::string& is) {
  return InvalidArgument(where, ": \"", column, "\" must be text, a number or a truth value", is);
}

// What a column without a value is.
enum class Nulls { kRefused, kEmpty };

Status VisitObjects(const std::string& path, const std::vector<std::string>& columns, Nulls nulls,
                    const RecordVisitor& visit) {
  std::vector<std::string> picked(columns.size());
  return ForEachJsonRecord(path, [&](const Json& object, const std::string& where) -> Status {
    for (size_t i = 0; i < columns.size(); ++i) {
      const Json* const member = MemberAt(object, columns[i]);
      if (member == nullptr) return NoColumn(where, columns[i], NamesIn(object));
      if (nulls == Nulls::kEmpty && member->is_null()) {
        picked[i].clear();
        continue;
      }
      if (member->is_structured() || member->is_null()) {
        return NoText(where, columns[i], Concat("; it is ", member->type_name()));
      }
      picked[i] = member->is_string() ? member->get<std::string>() : member->dump();
    }
    return visit(picked, where);
  });
}

// Where the field of a column that is asked for is: in which of the columns that are read, and as
// what member of it ("": it is the column).
struct Place {
  size_t column;
  std::string member;
};

// The columns that are read for those that are asked for, and where these are in them.
std::vector<std::string> ColumnsToRead(const TableReader& table,
                                       const std::vector<std::string>& columns,
                                       std::vector<Place>* places) {
  std::vector<std::string> read;
  for (const std::string& column : columns) {
    const bool whole = std::any_of(table.fields().begin(), table.fields().end(),
                                   [&](const Field& field) { return field.name == column; });
    const size_t dot = whole ? std::string::npos : column.find('.');
    const std::string name = column.substr(0, dot);
    const auto found = std::find(read.begin(), read.end(), name);
    places->push_back({static_cast<size_t>(found - read.begin()),
                       dot == std::string::npos ? "" : column.substr(dot + 1)});
    if (found == read.end()) read.push_back(name);
  }
  return read;
}

// False: it is no text, number or truth value. What JSON would have in quotes is without them.
bool ReadField(const Column& column, int64_t row, const std::string& member, std::string* field) {
  const TypeKind kind = column.type->kind;
  if (member.empty() && kind == TypeKind::kString && !column.IsNull(row)) {
    *field = column.strings[row];
    return true;
  }
  // Some writers do not say that bytes are text.
  if (member.empty() && kind == TypeKind::kBinary && !column.IsNull(row)) {
    *field = column.strings[row];
    return FindInvalidUtf8(*field) == kNoInvalidUtf8;
  }
  const Json value = JsonOf(column, row);
  const Json* const found = member.empty() ? &value : MemberAt(value, member);
  if (found == nullptr || found->is_structured() || found->is_null()) return false;
  *field = found->is_string() ? found->get<std::string>() : found->dump();
  return true;
}

Status VisitColumns(const std::string& path, const std::vector<std::string>& columns, Nulls nulls,
                    const RecordVisitor& visit) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table, OpenTable(path));
  std::vector<Place> places;
  TESSERA_RETURN_IF_ERROR(table->Select(ColumnsToRead(*table, columns, &places)));
  std::vector<std::string> picked(columns.size());
  RecordBatch batch;
  for (;;) {
    TESSERA_ASSIGN_OR_RETURN(const bool more, table->Next(&batch));
    if (!more) return OkStatus();
    for (int64_t row = 0; row < batch.rows.length; ++row) {
      const std::string where = Concat(path, "[", batch.first_row + row, "]");
      for (size_t i = 0; i < columns.size(); ++i) {
        const Column& column = batch.rows.children[places[i].column];
        if (ReadField(column, row, places[i].member, &picked[i])) continue;
        if (nulls == Nulls::kEmpty && column.IsNull(row)) {
          picked[i].clear();
          continue;
        }
        return NoText(where, columns[i],
                      column.IsNull(row) ? "; it is null"
                                         : Concat("; the column is ", TypeText(*column.type)));
      }
      TESSERA_RETURN_IF_ERROR(visit(picked, where));
    }
  }
}

}  // namespace

StatusOr<bool> HoldsColumns(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return IsColumnFile(BytesOf(file).substr(0, 8));
}

bool IsTable(const std::string& data) {
  const std::string path = FirstFileOfData(data);
  return EndsInOneOf(path, {".parquet", ".arrow"}) ||
         EndsInOneOf(WithoutCompression(path), {".tsv", ".csv", ".jsonl", ".ndjson", ".json"});
}

bool HasHeader(const std::string& data) {
  const std::string path = FirstFileOfData(data);
  return EndsInOneOf(WithoutCompression(path), {".tsv", ".csv"});
}

bool IsIndexColumn(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array kNames = {"", "id", "idx", "index", "guid", "uid", "uuid", "row"};
  return std::find(kNames.begin(), kNames.end(), lower) != kNames.end() || lower.ends_with("_id") ||
         lower.ends_with("_idx") || lower.starts_with("unnamed: ") ||
         (lower.starts_with("__index_level_") && lower.ends_with("__"));
}

StatusOr<std::vector<std::string>> ColumnsOf(const std::string& data) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOfData(data));
  const std::string& path = files.front();
  TESSERA_RETURN_IF_ERROR(CheckFormat(path));
  std::vector<std::string> names;
  TESSERA_ASSIGN_OR_RETURN(const bool columns, HoldsColumns(path));
  if (columns) {
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table, OpenTable(path));
    for (const Field& field : table->fields()) names.push_back(field.name);
    if (table->num_rows() == 0) names.clear();
  } else if (HasHeader(path)) {
    TESSERA_ASSIGN_OR_RETURN(TextPieces pieces, TextPieces::Open(path));
    TESSERA_RETURN_IF_ERROR(RowsOf(path, &pieces)->Next(&names).status());
  } else {
    const Status first =
        ForEachJsonRecord(path, [&](const Json& object, const std::string&) -> Status {
          names = NamesIn(object);
          return Failure(StatusCode::kCancelled, "the first is enough");
        });
    if (first.code() != StatusCode::kCancelled) TESSERA_RETURN_IF_ERROR(first);
  }
  if (names.empty()) return InvalidArgument(path, ": no records there");
  return names;
}

namespace {

Status VisitRecords(const std::string& path, const std::vector<std::string>& columns, Nulls nulls,
                    const RecordVisitor& visit) {
  for (auto column = columns.begin(); column != columns.end(); ++column) {
    if (std::find(columns.begin(), column, *column) == column) continue;
    return InvalidArgument(path, ": column '", *column, "' is asked for twice");
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOfData(path));
  for (const std::string& file : files) {
    TESSERA_RETURN_IF_ERROR(CheckFormat(file));
    TESSERA_ASSIGN_OR_RETURN(const bool has_columns, HoldsColumns(file));
    TESSERA_RETURN_IF_ERROR(has_columns       ? VisitColumns(file, columns, nulls, visit)
                            : HasHeader(file) ? VisitTable(file, columns, visit)
                                              : VisitObjects(file, columns, nulls, visit));
  }
  return OkStatus();
}

}  // namespace

Status ForEachRecord(const std::string& path, const std::vector<std::string>& columns,
                     const RecordVisitor& visit) {
  return VisitRecords(path, columns, Nulls::kRefused, visit);
}

StatusOr<bool> HoldValues(const std::string& path, const std::vector<std::string>& columns) {
  bool found = false;
  const Status read = VisitRecords(
      path, columns, Nulls::kEmpty, [&](std::span<const std::string> fields, const std::string&) {
        found = std::any_of(fields.begin(), fields.end(), [](const std::string& field) {
          return field.find_first_not_of(" \t") != std::string::npos;
        });
        return found ? Failure(StatusCode::kCancelled, "one is enough") : OkStatus();
      });
  if (found) return true;
  TESSERA_RETURN_IF_ERROR(read);
  return false;
}

}  // namespace tessera::data
