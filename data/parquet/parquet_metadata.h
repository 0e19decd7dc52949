// SPDX-License-Identifier: Apache-2.0
// What a Parquet file says of itself: its footer, and the headers of its pages. Names and numbers
// are those of parquet.thrift (github.com/apache/parquet-format).
#ifndef TESSERA_DATA_PARQUET_PARQUET_METADATA_H_
#define TESSERA_DATA_PARQUET_PARQUET_METADATA_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera::data {

enum class PhysicalType {
  kBoolean = 0,
  kInt32 = 1,
  kInt64 = 2,
  kInt96 = 3,
  kFloat = 4,
  kDouble = 5,
  kByteArray = 6,
  kFixedLenByteArray = 7,
};

enum class Repetition { kRequired = 0, kOptional = 1, kRepeated = 2 };

enum class ConvertedType {
  kNone = -1,
  kUtf8 = 0,
  kMap = 1,
  kMapKeyValue = 2,
  kList = 3,
  kEnum = 4,
  kDecimal = 5,
  kDate = 6,
  kTimeMillis = 7,
  kTimeMicros = 8,
  kTimestampMillis = 9,
  kTimestampMicros = 10,
  kUInt8 = 11,
  kUInt16 = 12,
  kUInt32 = 13,
  kUInt64 = 14,
  kInt8 = 15,
  kInt16 = 16,
  kInt32 = 17,
  kInt64 = 18,
  kJson = 19,
};

// The number is the field of the union LogicalType.
enum class LogicalKind {
  kNone = 0,
  kString = 1,
  kMap = 2,
  kList = 3,
  kEnum = 4,
  kDecimal = 5,
  kDate = 6,
  kTime = 7,
  kTimestamp = 8,
  kInteger = 10,
  kNull = 11,
  kJson = 12,
  kUuid = 14,
  kFloat16 = 15,
};

struct LogicalType {
  LogicalKind kind = LogicalKind::kNone;
  int scale = 0;
  int precision = 0;
  bool utc = false;
  int unit = 0;  // 1: milliseconds, 2: microseconds, 3: nanoseconds
  int bit_width = 0;
  bool is_signed = true;
};

struct SchemaElement {
  std::optional<PhysicalType> type;  // none: a group
  int type_length = 0;
  Repetition repetition = Repetition::kRequired;
  std::string name;
  int num_children = 0;
  ConvertedType converted = ConvertedType::kNone;
  int scale = 0;
  int precision = 0;
  LogicalType logical;
};

struct ColumnChunk {
  std::string file_path;  // of another file, which holds the chunk
  bool encrypted = false;
  bool has_metadata = false;
  int type = -1;
  int codec = 0;
  int64_t num_values = 0;
  int64_t compressed_size = 0;
  int64_t uncompressed_size = 0;
  int64_t data_page_offset = 0;
  int64_t dictionary_page_offset = 0;  // 0: there is none, or it is before the data pages
};

struct RowGroup {
  int64_t num_rows = 0;
  std::vector<ColumnChunk> columns;
};

struct FileMetadata {
  std::vector<SchemaElement> schema;
  std::vector<RowGroup> row_groups;
  std::map<std::string, std::string> key_values;
};

enum class PageType { kData = 0, kIndex = 1, kDictionary = 2, kDataV2 = 3 };

enum class Encoding {
  kPlain = 0,
  kPlainDictionary = 2,
  kRle = 3,
  kBitPacked = 4,
  kDeltaBinaryPacked = 5,
  kDeltaLengthByteArray = 6,
  kDeltaByteArray = 7,
  kRleDictionary = 8,
  kByteStreamSplit = 9,
};

struct PageHeader {
  PageType type = PageType::kIndex;
  int64_t uncompressed_size = -1;
  int64_t compressed_size = -1;
  std::optional<uint32_t> crc;
  int64_t num_values = 0;
  Encoding encoding = Encoding::kPlain;
  Encoding definition_level_encoding = Encoding::kRle;
  Encoding repetition_level_encoding = Encoding::kRle;
  // Version 2.
  int64_t definition_levels_size = 0;
  int64_t repetition_levels_size = 0;
  bool is_compressed = true;
};

// The footer's bytes. The message of a failure names no file.
StatusOr<FileMetadata> ParseFileMetadata(std::string_view bytes);

// The header that the bytes begin with; `header_size` becomes the number of its bytes.
StatusOr<PageHeader> ParsePageHeader(std::string_view bytes, size_t* header_size);

// "zstd", "brotli", "codec 9".
std::string CodecName(int codec);

}  // namespace tessera::data

#endif  // TESSERA_DATA_PARQUET_PARQUET_METADATA_H_
