// SPDX-License-Identifier: Apache-2.0
// The values of a data page, in any of Parquet's encodings.
#ifndef TESSERA_DATA_PARQUET_PAGE_VALUES_H_
#define TESSERA_DATA_PARQUET_PAGE_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/parquet/parquet_metadata.h"
#include "data/parquet/parquet_schema.h"

namespace tessera::data {

// Values that are not null, in order: of fixed width as bytes, byte arrays as views into `kept`.
struct LeafValues {
  std::vector<std::byte> fixed;
  std::vector<std::string_view> strings;
  std::vector<std::shared_ptr<const void>> kept;
  int64_t joined_bytes = 0;  // of strings that were put together from parts of others
};

// Gives the values of one page, piece by piece.
class PageValues {
 public:
  virtual ~PageValues() = default;
  // Appends the next `count` values. A failure says what is wrong, not where.
  virtual Status Read(int64_t count, LeafValues* out) = 0;
};

// `bytes` are the page's values, which views of `out` will point into; `dictionary` is nullptr
// where the chunk has none, and lives as long as the result.
StatusOr<std::unique_ptr<PageValues>> OpenPageValues(const ParquetLeaf& leaf, Encoding encoding,
                                                     std::string_view bytes,
                                                     const LeafValues* dictionary);

// A dictionary page's values.
StatusOr<LeafValues> ReadDictionary(const ParquetLeaf& leaf, Encoding encoding,
                                    std::string_view bytes, int64_t count);

// DataLoss where one of the strings from `begin` on is not UTF-8 though the leaf is text.
Status CheckText(const ParquetLeaf& leaf, const std::vector<std::string_view>& strings,
                 size_t begin);

}  // namespace tessera::data

#endif  // TESSERA_DATA_PARQUET_PAGE_VALUES_H_
