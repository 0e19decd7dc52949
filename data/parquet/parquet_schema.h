// SPDX-License-Identifier: Apache-2.0
// The columns of a Parquet file as types, and the levels that say where rows have nulls and lists.
//
// Parquet stores the leaves of a tree. Every entry of a leaf has a definition level (how many of
// the optional and repeated nodes above it are there) and a repetition level (which repeated node
// the entry continues; 0: a new row). A node's slots are the entries of any leaf below it with a
// repetition level <= slot_repetition and a definition level >= slot_definition: one for each
// element of the list around it, or for each row. Lists are recognised by the rules "Lists" and
// "Maps" of github.com/apache/parquet-format, LogicalTypes.md, the older forms among them.
#ifndef TESSERA_DATA_PARQUET_PARQUET_SCHEMA_H_
#define TESSERA_DATA_PARQUET_PARQUET_SCHEMA_H_

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/columns/column_type.h"
#include "data/parquet/parquet_metadata.h"

namespace tessera::data {

struct ParquetLeaf {
  std::string path;  // "messages.list.element.role"
  PhysicalType physical = PhysicalType::kBoolean;
  int type_length = 0;  // of kFixedLenByteArray
  ColumnTypePtr type;
  int max_definition = 0;
  int max_repetition = 0;
};

struct ParquetNode {
  std::string name;
  ColumnTypePtr type;
  // A slot is not null from this definition level on (of a required node: its parent's).
  int valid_definition = 0;
  int slot_definition = 0;
  int slot_repetition = 0;
  // The children of lists and maps have slots of these levels; those of structs, of the node's own.
  int element_definition = 0;
  std::vector<ParquetNode> children;
  // The first leaf at or below, as an index into ParquetSchema::leaves.
  size_t first_leaf = 0;
  size_t num_leaves = 0;
};

struct ParquetSchema {
  std::vector<ParquetNode> columns;
  std::vector<ParquetLeaf> leaves;
};

// The message of a failure names no file.
StatusOr<ParquetSchema> MakeParquetSchema(const std::vector<SchemaElement>& elements);

}  // namespace tessera::data

#endif  // TESSERA_DATA_PARQUET_PARQUET_SCHEMA_H_
