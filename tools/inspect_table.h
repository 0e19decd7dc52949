// SPDX-License-Identifier: Apache-2.0
// What `tessera inspect` says of a Parquet or Arrow file.
#ifndef TESSERA_TOOLS_INSPECT_TABLE_H_
#define TESSERA_TOOLS_INSPECT_TABLE_H_

#include <string>

#include "base/status.h"

namespace tessera::tools {

// The columns with their types, the parts of the file (row groups, batches), and the first rows.
// Every value is read, so that damage is found.
StatusOr<std::string> DescribeTable(const std::string& path);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_INSPECT_TABLE_H_
