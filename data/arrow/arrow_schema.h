// SPDX-License-Identifier: Apache-2.0
// The schema of an Arrow file: types, and how each lies in a record batch's buffers. The numbers
// are those of Schema.fbs (github.com/apache/arrow, format/).
#ifndef TESSERA_DATA_ARROW_ARROW_SCHEMA_H_
#define TESSERA_DATA_ARROW_ARROW_SCHEMA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/arrow/flatbuffer.h"
#include "data/columns/column_type.h"

namespace tessera::data {

// Which buffers a column has beside the bits of its nulls.
enum class ArrowLayout {
  kNull,       // none, and no bits of nulls
  kBits,       // truth values
  kFixed,      // one of values
  kStrings,    // offsets, bytes
  kViews,      // views of 16 bytes, then any number of buffers of bytes
  kList,       // offsets; a child
  kFixedList,  // a child
  kStruct,     // children
};

struct ArrowField;

struct ArrowDictionary {
  int64_t id = 0;
  int index_width = 4;
  bool index_signed = true;
  // What the dictionary's batches hold: the field, without the dictionary.
  std::shared_ptr<const ArrowField> values;
};

struct ArrowField {
  std::string name;
  std::string path;  // "messages.item.role"
  ColumnTypePtr type;
  ArrowLayout layout = ArrowLayout::kNull;
  bool milliseconds = false;  // a date64, whose values become days
  int offset_width = 4;       // kStrings, kList
  int64_t list_size = 0;      // kFixedList
  // A map's one child is a struct of key and value.
  std::vector<ArrowField> children;
  std::shared_ptr<const ArrowDictionary> dictionary;  // nullptr: the values themselves
};

// The table Schema. InvalidArgument, naming the column, for a type that is not supported (unions,
// intervals, run-end encoded ones, views of lists) and for big-endian files. The message names no
// file.
StatusOr<std::vector<ArrowField>> ParseArrowSchema(const FlatTable& schema);

}  // namespace tessera::data

#endif  // TESSERA_DATA_ARROW_ARROW_SCHEMA_H_
