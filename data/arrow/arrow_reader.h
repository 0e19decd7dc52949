// SPDX-License-Identifier: Apache-2.0
// Reads Arrow IPC files and streams (data/columns/table_reader.h), those of save_to_disk of Hugging
// Face's datasets among them.
//
// The formats: arrow.apache.org/docs/format/Columnar.html, versions V4 and V5 of the metadata.
// Buffers may be compressed with LZ4 or Zstandard. Dictionaries are resolved, also those that grow
// or change within a stream. `TablePart` is a record batch. A stream is looked through when it is
// opened, so that its number of rows is known.
#ifndef TESSERA_DATA_ARROW_ARROW_READER_H_
#define TESSERA_DATA_ARROW_ARROW_READER_H_

#include <memory>
#include <string_view>

#include "base/file.h"
#include "base/status.h"
#include "data/columns/table_reader.h"

namespace tessera::data {

// Whether a file that begins with these bytes (8 or more) is an Arrow file or a stream.
bool IsArrow(std::string_view begin);

StatusOr<std::unique_ptr<TableReader>> OpenArrow(const MappedFile& file);

}  // namespace tessera::data

#endif  // TESSERA_DATA_ARROW_ARROW_READER_H_
