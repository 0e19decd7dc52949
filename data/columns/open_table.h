// SPDX-License-Identifier: Apache-2.0
// Opens a file of columns, of any kind there is a reader for.
//
//   TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table, OpenTable("a.parquet"));
#ifndef TESSERA_DATA_COLUMNS_OPEN_TABLE_H_
#define TESSERA_DATA_COLUMNS_OPEN_TABLE_H_

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "data/columns/table_reader.h"

namespace tessera::data {

// Whether a file that begins with these bytes (its first 8) is Parquet, an Arrow file or an Arrow
// stream.
bool IsColumnFile(std::string_view begin);

// The file's first bytes, not its name, say what it is. InvalidArgument for another kind of file;
// NotFound and the like where it cannot be opened.
StatusOr<std::unique_ptr<TableReader>> OpenTable(const std::string& path);

}  // namespace tessera::data

#endif  // TESSERA_DATA_COLUMNS_OPEN_TABLE_H_
