// SPDX-License-Identifier: Apache-2.0
#include "data/columns/open_table.h"

#include <algorithm>

#include "base/file.h"
#include "data/arrow/arrow_reader.h"
#include "data/parquet/parquet_reader.h"

namespace tessera::data {

bool IsColumnFile(std::string_view begin) { return IsParquet(begin) || IsArrow(begin); }

StatusOr<std::unique_ptr<TableReader>> OpenTable(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const std::string_view begin(reinterpret_cast<const char*>(file.data()),
                               static_cast<size_t>(std::min<int64_t>(file.size(), 8)));
  if (IsParquet(begin)) return OpenParquet(file);
  if (IsArrow(begin)) return OpenArrow(file);
  return InvalidArgument(path, ": neither Parquet nor an Arrow file or stream",
                         begin.empty() ? " (the file is empty)" : "");
}

}  // namespace tessera::data
