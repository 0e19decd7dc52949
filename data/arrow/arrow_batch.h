// SPDX-License-Identifier: Apache-2.0
// A record batch of an Arrow file: its buffers, and rows of its columns.
//
//   TESSERA_ASSIGN_OR_RETURN(const ArrowBatch batch, ArrowBatch::Load(table, body, fields,
//   wanted)); TESSERA_ASSIGN_OR_RETURN(const Column column, batch.Rows(0, begin, count,
//   dictionaries));
//
// Failures begin with the column ("column 'a.b': ...") and name no file.
#ifndef TESSERA_DATA_ARROW_ARROW_BATCH_H_
#define TESSERA_DATA_ARROW_ARROW_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/arrow/arrow_schema.h"
#include "data/arrow/flatbuffer.h"
#include "data/columns/column.h"
#include "data/columns/decompress.h"

namespace tessera::data {

// The values of dictionaries, by their ids.
using ArrowDictionaries = std::map<int64_t, Column>;

// The codec of a table RecordBatch; none: its buffers lie as they are.
StatusOr<std::optional<Codec>> ArrowCodec(const FlatTable& batch);

class ArrowBatch {
 public:
  // Of a table RecordBatch, whose buffers are in `body`: the columns of these indices, which must
  // be in fields' range. Compressed buffers are decompressed, in parallel; others are views.
  static StatusOr<ArrowBatch> Load(const FlatTable& batch, const ByteBuffer& body,
                                   const std::vector<ArrowField>& fields,
                                   const std::vector<size_t>& wanted);

  int64_t num_rows() const { return num_rows_; }
  // Rows [begin, begin + count), which are there, of wanted[i].
  StatusOr<Column> Rows(size_t i, int64_t begin, int64_t count,
                        const ArrowDictionaries& dictionaries) const;

 private:
  struct Node {
    const ArrowField* field = nullptr;  // of the schema, which outlives the batch
    int64_t length = 0;
    int64_t null_count = 0;
    std::vector<ByteBuffer> buffers;  // the bits of nulls come first
    std::vector<Node> children;
  };
  class Loader;
  class RowReader;

  int64_t num_rows_ = 0;
  std::vector<Node> columns_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_ARROW_ARROW_BATCH_H_
