// SPDX-License-Identifier: Apache-2.0
#include "data/columns/table_reader.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera::data {
namespace {

// About what a batch may take in memory.
constexpr int64_t kBatchBytes = int64_t{32} << 20;

ColumnTypePtr RowType(const std::vector<Field>& fields, const std::vector<size_t>& selected) {
  ColumnType type = {.kind = TypeKind::kStruct, .zone = {}};
  for (const size_t i : selected) type.children.push_back(fields[i]);
  return std::make_shared<const ColumnType>(std::move(type));
}

}  // namespace

void TableReader::SetTable(std::vector<Field> fields, std::vector<TablePart> parts,
                           TableMetadata metadata) {
  fields_ = std::move(fields);
  parts_ = std::move(parts);
  metadata_ = std::move(metadata);
  for (const TablePart& part : parts_) num_rows_ += part.num_rows;
  selected_.resize(fields_.size());
  std::iota(selected_.begin(), selected_.end(), size_t{0});
  row_type_ = RowType(fields_, selected_);
}

Status TableReader::Select(const std::vector<std::string>& names) {
  std::vector<size_t> selected;
  for (const std::string& name : names) {
    const auto at = std::ranges::find(fields_, name, &Field::name);
    if (at == fields_.end()) {
      return InvalidArgument(path_, ": no column '", name, "' (columns: ", FieldsText(fields_),
                             ")");
    }
    const auto i = static_cast<size_t>(at - fields_.begin());
    if (std::ranges::find(selected, i) != selected.end()) {
      return InvalidArgument(path_, ": column '", name, "' is asked for twice");
    }
    selected.push_back(i);
  }
  selected_ = std::move(selected);
  row_type_ = RowType(fields_, selected_);
  return OkStatus();
}

StatusOr<bool> TableReader::Next(RecordBatch* batch) {
  while (part_ < parts_.size() && row_of_part_ == parts_[part_].num_rows) {
    ++part_;
    row_of_part_ = 0;
  }
  if (part_ == parts_.size()) return false;
  const TablePart& part = parts_[part_];
  const int64_t row_bytes = std::max(part.bytes, part.uncompressed_bytes) / part.num_rows + 1;
  const int64_t count = std::min(
      {part.num_rows - row_of_part_, kMaxBatchRows, std::max<int64_t>(kBatchBytes / row_bytes, 1)});
  *batch = {.first_row = row_, .rows = {}};
  batch->rows.type = row_type_;
  batch->rows.length = count;
  TESSERA_RETURN_IF_ERROR(ReadRows(part_, row_of_part_, count, &batch->rows));
  row_of_part_ += count;
  row_ += count;
  return true;
}

Status TableReader::SeekToRow(int64_t row) {
  if (row < 0 || row > num_rows_) {
    return InvalidArgument(path_, ": no row ", row, " (the file has ", num_rows_, " rows)");
  }
  part_ = 0;
  row_ = row;
  for (; part_ < parts_.size() && row >= parts_[part_].num_rows; ++part_) {
    row -= parts_[part_].num_rows;
  }
  row_of_part_ = row;
  return OkStatus();
}

}  // namespace tessera::data
