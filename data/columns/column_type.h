// SPDX-License-Identifier: Apache-2.0
// Types of a table's columns, whatever file the table comes from.
//
//   TypeText(*field.type)    // "list<struct<role: string, content: string>>"
//
// The texts are pyarrow's, without its distinction of offsets' widths ("large_string" is "string")
// and without the names of lists' elements. Columns that a file holds as a dictionary have the type
// of the dictionary's values.
#ifndef TESSERA_DATA_COLUMNS_COLUMN_TYPE_H_
#define TESSERA_DATA_COLUMNS_COLUMN_TYPE_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera::data {

enum class TypeKind {
  kNull,
  kBool,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kFloat16,
  kFloat32,
  kFloat64,
  kDecimal,  // a signed integer times 10^-scale
  kString,   // UTF-8
  kBinary,
  kFixedBinary,
  kUuid,       // 16 bytes
  kDate,       // days since 1970-01-01
  kTime,       // units since midnight
  kTimestamp,  // units since 1970-01-01T00:00:00, of UTC where there is a zone
  kDuration,   // units
  kList,       // one child: the elements
  kStruct,     // a child for each member
  kMap,        // two children: the keys and the values
};

enum class TimeUnit { kSecond, kMillisecond, kMicrosecond, kNanosecond };
inline constexpr int64_t UnitsPerSecond(TimeUnit unit) {
  constexpr int64_t kUnits[] = {1, 1'000, 1'000'000, 1'000'000'000};
  return kUnits[static_cast<int>(unit)];
}

struct ColumnType;
using ColumnTypePtr = std::shared_ptr<const ColumnType>;

// A column of a table, or a member of a struct.
struct Field {
  std::string name;
  ColumnTypePtr type;
};

struct ColumnType {
  TypeKind kind = TypeKind::kNull;
  // Bytes of a value in Column::values; 0 where the kind keeps none there. Truth values have 1.
  int byte_width = 0;
  int precision = 0;  // decimals
  int scale = 0;
  TimeUnit unit = TimeUnit::kSecond;  // times, timestamps, durations
  std::string zone;                   // timestamps; empty: local time of an unknown place
  std::vector<Field> children = {};
};

// A type of fixed width without parameters (kBool to kFloat64, kUuid, kDate), kNull, kString or
// kBinary.
ColumnType PlainType(TypeKind kind);

std::string TypeText(const ColumnType& type);

// "id: int64, text: string": for messages and for inspection.
std::string FieldsText(const std::vector<Field>& fields);

}  // namespace tessera::data

#endif  // TESSERA_DATA_COLUMNS_COLUMN_TYPE_H_
