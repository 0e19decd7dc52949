// SPDX-License-Identifier: Apache-2.0
// The names of a column's classes, where the file says them as `datasets` does: in its metadata
// "huggingface", {"info": {"features": {"label": {"names": ["cat", "dog"], "_type":
// "ClassLabel"}}}}.
//
//   ClassNames(*table, "label")    // {"cat", "dog"}; the column holds 0 and 1
#ifndef TESSERA_DATA_COLUMNS_CLASS_NAMES_H_
#define TESSERA_DATA_COLUMNS_CLASS_NAMES_H_

#include <string>
#include <vector>

#include "data/columns/table_reader.h"

namespace tessera::data {

// Empty where the file does not say.
std::vector<std::string> ClassNames(const TableReader& table, const std::string& column);

}  // namespace tessera::data

#endif  // TESSERA_DATA_COLUMNS_CLASS_NAMES_H_
