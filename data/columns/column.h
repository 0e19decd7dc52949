// SPDX-License-Identifier: Apache-2.0
// Rows of a table, column by column: what the readers of Parquet and Arrow files give.
//
//   if (!column.IsNull(row)) {
//     const auto number = column.Value<int64_t>(row);      // type->kind is kInt64
//     const std::string_view text = column.strings[row];   // ... kString
//   }
//
// A column is views and what keeps them alive: copies share it, and outlive the reader. Nobody
// writes to a column that is made. data/columns/column_json.h turns any row into JSON.
#ifndef TESSERA_DATA_COLUMNS_COLUMN_H_
#define TESSERA_DATA_COLUMNS_COLUMN_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/columns/column_type.h"

namespace tessera::data {

struct Column {
  ColumnTypePtr type;
  int64_t length = 0;
  // A byte per row, 0 for null; nullptr: no row is null. Of kNull, every row is.
  const uint8_t* valid = nullptr;
  // Kinds of fixed width: ColumnType::byte_width bytes per row, little-endian, at any alignment.
  const std::byte* values = nullptr;
  // kString, kBinary: a view per row, empty for null.
  const std::string_view* strings = nullptr;
  // kList, kMap: length + 1 offsets. Row r has elements [offsets[r], offsets[r + 1]) of the
  // children.
  const int64_t* offsets = nullptr;
  std::vector<Column> children = {};
  std::vector<std::shared_ptr<const void>> kept = {};

  bool IsNull(int64_t row) const {
    return type->kind == TypeKind::kNull || (valid != nullptr && valid[row] == 0);
  }
  // sizeof(T) is type->byte_width.
  template <typename T>
  T Value(int64_t row) const {
    T value;
    std::memcpy(&value, values + row * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  // Of kinds of fixed width, as they lie.
  std::string_view Bytes(int64_t row) const {
    return {reinterpret_cast<const char*>(values) + row * type->byte_width,
            static_cast<size_t>(type->byte_width)};
  }

  // Makes these the values, and keeps them.
  void SetValid(std::vector<uint8_t> bytes) { valid = Keep(std::move(bytes)); }
  void SetValues(std::vector<std::byte> bytes) { values = Keep(std::move(bytes)); }
  void SetStrings(std::vector<std::string_view> views) { strings = Keep(std::move(views)); }
  void SetOffsets(std::vector<int64_t> numbers) { offsets = Keep(std::move(numbers)); }

 private:
  template <typename T>
  const T* Keep(std::vector<T> numbers) {
    auto owner = std::make_shared<const std::vector<T>>(std::move(numbers));
    const T* const data = owner->data();
    kept.push_back(std::move(owner));
    return data;
  }
};

// Consecutive rows of a table.
struct RecordBatch {
  // The number of the first row within the file, from 0.
  int64_t first_row = 0;
  // A column of structs, which are the rows: children are the table's columns.
  Column rows;
};

// What a column that is made of few bytes by repeating them may take: of a damaged file, or of one
// that means harm.
inline constexpr int64_t kMaxRepeatedBytes = int64_t{1} << 31;

// The rows of these numbers, in this order; those < 0 become null. Numbers are < column.length.
// InvalidArgument where a buffer would take more than kMaxRepeatedBytes.
StatusOr<Column> TakeRows(const Column& column, std::span<const int64_t> rows);

// The rows of one column behind those of the other, which has the same type.
StatusOr<Column> Concatenated(const Column& first, const Column& second);

}  // namespace tessera::data

#endif  // TESSERA_DATA_COLUMNS_COLUMN_H_
