// SPDX-License-Identifier: Apache-2.0
// Columns of lists and structs from the entries of their leaves.
#ifndef TESSERA_DATA_PARQUET_ASSEMBLE_COLUMN_H_
#define TESSERA_DATA_PARQUET_ASSEMBLE_COLUMN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "data/columns/column.h"
#include "data/parquet/leaf_reader.h"
#include "data/parquet/parquet_schema.h"

namespace tessera::data {

// `entries` are those of the node's leaves, in order, whose values it takes. DataLoss where leaves
// of one struct or map disagree. The message of a failure begins with the leaf: "column 'a.b':
// ...".
StatusOr<Column> AssembleColumn(const ParquetNode& node, std::span<const ParquetLeaf> leaves,
                                std::span<LeafEntries> entries);

}  // namespace tessera::data

#endif  // TESSERA_DATA_PARQUET_ASSEMBLE_COLUMN_H_
