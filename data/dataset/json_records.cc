// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/json_records.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "base/json_ordered.h"
#include "data/columns/column_json.h"
#include "data/columns/open_table.h"
#include "data/dataset/byte_source.h"
#include "data/dataset/data_folder.h"
#include "data/dataset/record_input.h"
#include "data/dataset/text_file.h"
#include "data/dataset/text_pieces.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBlanks = " \t\r\n";

Status VisitObject(const Json& record, const std::string& where, const JsonRecordVisitor& visit) {
  if (!record.is_object()) return InvalidArgument(where, ": not a JSON object");
  return visit(record, where);
}

Status VisitArray(const std::string& path, const JsonRecordVisitor& visit) {
  TESSERA_ASSIGN_OR_RETURN(TextPieces pieces, TextPieces::Open(path));
  TESSERA_ASSIGN_OR_RETURN(const std::string_view text, pieces.Rest());
  TESSERA_ASSIGN_OR_RETURN(const Json array, ParseOrderedJson(text, path));
  for (size_t i = 0; i < array.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(VisitObject(array[i], Concat(path, "[", i, "]"), visit));
  }
  return OkStatus();
}

// What a file begins with that is no line of records: one object over several lines, if that it is.
Status VisitWhole(const std::string& path, const Status& line, const JsonRecordVisitor& visit) {
  TESSERA_ASSIGN_OR_RETURN(TextPieces pieces, TextPieces::Open(path));
  TESSERA_ASSIGN_OR_RETURN(const std::string_view text, pieces.Rest());
  const StatusOr<Json> whole = ParseOrderedJson(text, path);
  return whole.ok() ? VisitObject(*whole, path, visit) : line;
}

Status VisitText(const std::string& path, const JsonRecordVisitor& visit) {
  TESSERA_ASSIGN_OR_RETURN(TextPieces pieces, TextPieces::Open(path));
  TESSERA_ASSIGN_OR_RETURN(std::string_view piece, pieces.Next());
  const size_t first = piece.find_first_not_of(kBlanks);
  if (first != std::string_view::npos && piece[first] == '[') {
    return VisitArray(path, visit);
  }
  bool any = false;
  for (size_t number = 1; !piece.empty();) {
    for (; !piece.empty(); ++number) {
      const size_t end = std::min(piece.find('\n'), piece.size());
      const std::string_view line = piece.substr(0, end);
      piece.remove_prefix(std::min(end + 1, piece.size()));
      if (line.find_first_not_of(kBlanks) == std::string_view::npos) continue;
      const std::string where = Concat(path, ":", number);
      const StatusOr<Json> record = ParseOrderedJson(line, where);
      if (!record.ok() && !any && EndsInOneOf(WithoutCompression(path), {".json"})) {
        return VisitWhole(path, record.status(), visit);
      }
      if (!record.ok() && !any && EndsInOneOf(WithoutCompression(path), {".csv", ".tsv"})) {
        return InvalidArgument(path,
                               ": is a table of texts; records are read from .jsonl, .json, "
                               ".parquet and .arrow");
      }
      TESSERA_RETURN_IF_ERROR(record.status());
      any = true;
      TESSERA_RETURN_IF_ERROR(VisitObject(*record, where, visit));
    }
    TESSERA_ASSIGN_OR_RETURN(piece, pieces.Next());
  }
  return OkStatus();
}

Status VisitRows(const std::string& path, const JsonRecordVisitor& visit) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table, OpenTable(path));
  RecordBatch batch;
  for (;;) {
    TESSERA_ASSIGN_OR_RETURN(const bool more, table->Next(&batch));
    if (!more) return OkStatus();
    for (int64_t row = 0; row < batch.rows.length; ++row) {
      const std::string where = Concat(path, "[", batch.first_row + row, "]");
      TESSERA_RETURN_IF_ERROR(visit(JsonOf(batch.rows, row), where));
    }
  }
}

}  // namespace

Status ForEachJsonRecord(const std::string& path, const JsonRecordVisitor& visit) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOfData(path));
  for (const std::string& file : files) {
    TESSERA_ASSIGN_OR_RETURN(const bool columns, HoldsColumns(file));
    TESSERA_RETURN_IF_ERROR(columns ? VisitRows(file, visit) : VisitText(file, visit));
  }
  return OkStatus();
}

}  // namespace tessera::data
