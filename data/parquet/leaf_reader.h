// SPDX-License-Identifier: Apache-2.0
// One column chunk of a Parquet file, page by page.
#ifndef TESSERA_DATA_PARQUET_LEAF_READER_H_
#define TESSERA_DATA_PARQUET_LEAF_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/columns/decompress.h"
#include "data/parquet/bit_readers.h"
#include "data/parquet/page_values.h"
#include "data/parquet/parquet_metadata.h"
#include "data/parquet/parquet_schema.h"

namespace tessera::data {

// Entries of a leaf: levels of each (left empty where the leaf's largest level is 0), and the
// values of those whose definition level is the leaf's largest.
struct LeafEntries {
  int64_t count = 0;
  std::vector<uint8_t> definition;
  std::vector<uint8_t> repetition;
  LeafValues values;
};

class LeafReader {
 public:
  // `file` is everything before the footer, `owner` keeps it. `leaf` outlives the reader.
  // InvalidArgument for a compression that is not supported; failures name neither file nor column.
  static StatusOr<LeafReader> Open(const ParquetLeaf& leaf, const ColumnChunk& chunk,
                                   std::string_view file, std::shared_ptr<const void> owner);

  // Appends the entries of the next `rows` rows. DataLoss where there are fewer.
  Status Read(int64_t rows, LeafEntries* out);
  // Whether every entry has been read.
  bool AtEnd() const { return chunk_left_ == 0 && page_left_ == 0 && piece_begin_ == piece_end_; }

 private:
  // Levels in either of their encodings.
  struct LevelReader {
    int largest = 0;
    bool packed = false;
    RunReader runs = {};
    PackedLevelReader bits = {};
    Status Read(uint8_t* out, int64_t count);
  };

  LeafReader(const ParquetLeaf& leaf, std::string_view file, std::shared_ptr<const void> owner)
      : leaf_(&leaf), file_(file), owner_(std::move(owner)) {}

  Status NextPage();
  StatusOr<ByteBuffer> PageBytes(std::string_view stored, int64_t size, bool compressed) const;
  Status OpenDictionary(const PageHeader& header, std::string_view stored);
  Status OpenPage(const PageHeader& header, std::string_view stored);
  Status OpenPageV2(const PageHeader& header, std::string_view stored);
  Status TakeLevels(int largest, Encoding encoding, std::string_view* bytes, LevelReader* levels);
  Status NextPiece();
  Status ReadFlat(int64_t rows, LeafEntries* out);
  Status ReadNested(int64_t rows, LeafEntries* out);
  // Moves entries of the piece, with their values.
  Status TakeEntries(int64_t count, LeafEntries* out);
  Status ReadValues(int64_t count, LeafEntries* out);

  const ParquetLeaf* leaf_;
  std::string_view file_;
  std::shared_ptr<const void> owner_;
  std::optional<Codec> codec_;
  size_t position_ = 0;     // of the next page
  int64_t chunk_left_ = 0;  // entries of the pages from there on
  std::unique_ptr<LeafValues> dictionary_;

  // The page.
  ByteBuffer page_;
  int64_t page_left_ = 0;  // entries whose levels have not been read
  bool values_from_dictionary_ = false;
  bool page_is_kept_ = false;
  LevelReader definition_;
  LevelReader repetition_;
  std::unique_ptr<PageValues> values_;

  // Levels that have been read and not yet given.
  std::vector<uint8_t> piece_definition_;
  std::vector<uint8_t> piece_repetition_;
  int64_t piece_begin_ = 0;
  int64_t piece_end_ = 0;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_PARQUET_LEAF_READER_H_
