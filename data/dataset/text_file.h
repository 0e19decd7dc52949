// SPDX-License-Identifier: Apache-2.0
// Files of text: what their names say of their form, and whether their bytes are text at all.
//
//   TESSERA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
//   TESSERA_ASSIGN_OR_RETURN(const std::string_view text, TextIn(BytesOf(file), path));
#ifndef TESSERA_DATA_DATASET_TEXT_FILE_H_
#define TESSERA_DATA_DATASET_TEXT_FILE_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"

namespace tessera::data {

// Whether a path ends in one of these (".tsv"), in letters of either case.
bool EndsInOneOf(std::string_view path, std::initializer_list<std::string_view> endings);

std::string_view BytesOf(const MappedFile& file);

// The bytes of `path` from `offset` on as text, without a byte-order mark at its begin.
// InvalidArgument for what is not UTF-8: by the name of its format where that is known (bzip2,
// Parquet, UTF-16, ...), else by the offset of the first byte that is wrong.
StatusOr<std::string_view> TextIn(std::string_view bytes, const std::string& path,
                                  int64_t offset = 0);

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_TEXT_FILE_H_
