// SPDX-License-Identifier: Apache-2.0
// Reads a table from a file, some rows at a time (data/columns/open_table.h opens one).
//
//   TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table, OpenTable("a.parquet"));
//   TESSERA_RETURN_IF_ERROR(table->Select({"messages"}));
//   RecordBatch batch;
//   while (true) {
//     TESSERA_ASSIGN_OR_RETURN(const bool more, table->Next(&batch));
//     if (!more) break;
//     for (int64_t row = 0; row < batch.rows.length; ++row) {
//       AppendJson(batch.rows, row, &line);
//     }
//   }
//
// The file is mapped, and only the bytes of the columns that are wanted are touched. Strings are
// checked to be UTF-8. The columns of a batch are decoded in parallel (core/thread_pool.h).
//
// A failure names the file, the part and the column: "train.parquet: row group 3, column
// 'messages.list.element.role': the page ends early". DataLoss: the file is damaged.
// InvalidArgument: the file is another kind of file, or has what this reader does not know (a type,
// a compression, an encoding), which the message names. After a failure of Next, only SeekToRow may
// follow.
#ifndef TESSERA_DATA_COLUMNS_TABLE_READER_H_
#define TESSERA_DATA_COLUMNS_TABLE_READER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/columns/column.h"

namespace tessera::data {

// What a file is cut into: a row group of Parquet, a record batch of Arrow.
struct TablePart {
  int64_t num_rows = 0;
  int64_t bytes = 0;               // in the file, of all columns
  int64_t uncompressed_bytes = 0;  // 0: the file does not say
  std::string compression;         // "none", "zstd", "snappy, none": of all columns
};

using TableMetadata = std::map<std::string, std::string>;

class TableReader {
 public:
  // No batch has more rows. It has fewer where rows are large, and ends where a part ends.
  static constexpr int64_t kMaxBatchRows = 65536;

  virtual ~TableReader() = default;
  TableReader(const TableReader&) = delete;
  TableReader& operator=(const TableReader&) = delete;

  const std::string& path() const { return path_; }
  // "Parquet", "Arrow file", "Arrow stream".
  const std::string& format() const { return format_; }
  // Every column of the file.
  const std::vector<Field>& fields() const { return fields_; }
  int64_t num_rows() const { return num_rows_; }
  const std::vector<TablePart>& parts() const { return parts_; }
  // What the file says of itself, by key ("huggingface", "pandas").
  const TableMetadata& metadata() const { return metadata_; }

  // The columns that batches have from now on, in this order; at first, all. InvalidArgument for a
  // name that is not there (listing the columns and their types) or that is given twice.
  Status Select(const std::vector<std::string>& names);

  // The next rows; false at the end of the table.
  StatusOr<bool> Next(RecordBatch* batch);

  // The next batch begins with this row, in [0, num_rows()]. Only the part that holds it is looked
  // at.
  Status SeekToRow(int64_t row);

 protected:
  TableReader(std::string path, std::string format)
      : path_(std::move(path)), format_(std::move(format)) {}

  // To be called once, by the one who opens a file. The numbers of rows are >= 0, and their sum is
  // an int64_t.
  void SetTable(std::vector<Field> fields, std::vector<TablePart> parts, TableMetadata metadata);

  // Columns that are wanted, as indices into fields().
  const std::vector<size_t>& selected() const { return selected_; }

  // Rows [begin, begin + count) of a part: the children of `rows`, whose type and length are set.
  // Mostly the rows behind those of the last call.
  virtual Status ReadRows(size_t part, int64_t begin, int64_t count, Column* rows) = 0;

 private:
  std::string path_;
  std::string format_;
  std::vector<Field> fields_;
  std::vector<TablePart> parts_;
  TableMetadata metadata_;
  int64_t num_rows_ = 0;
  std::vector<size_t> selected_;
  ColumnTypePtr row_type_;
  // Where the next batch begins.
  size_t part_ = 0;
  int64_t row_of_part_ = 0;
  int64_t row_ = 0;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_COLUMNS_TABLE_READER_H_
