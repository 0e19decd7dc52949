// SPDX-License-Identifier: Apache-2.0
// Reads Parquet files (data/columns/table_reader.h).
//
// The formats: github.com/apache/parquet-format. Read are data pages of both versions, every
// encoding, and files without compression or compressed with Snappy, gzip, Zstandard or LZ4_RAW;
// checksums of pages are checked where they are stored. Refused by name are Brotli, LZO, the older
// LZ4, and encryption. `TablePart` is a row group.
#ifndef TESSERA_DATA_PARQUET_PARQUET_READER_H_
#define TESSERA_DATA_PARQUET_PARQUET_READER_H_

#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"
#include "data/columns/table_reader.h"

namespace tessera::data {

// Whether a file that begins with these bytes is Parquet.
bool IsParquet(std::string_view begin);

StatusOr<std::unique_ptr<TableReader>> OpenParquet(const MappedFile& file);

}  // namespace tessera::data

#endif  // TESSERA_DATA_PARQUET_PARQUET_READER_H_
