// SPDX-License-Identifier: Apache-2.0
// One block of compressed bytes whose size is known, as Parquet's pages and Arrow's buffers are.
//
//   TESSERA_ASSIGN_OR_RETURN(const ByteBuffer page, Decompress(Codec::kZstd, bytes, size));
//
// A size that the codec cannot reach from so few bytes is refused before memory is asked for, and
// so is one that the bytes themselves contradict. DataLoss: the bytes are damaged or of another
// size. The messages name neither file nor column.
#ifndef TESSERA_DATA_COLUMNS_DECOMPRESS_H_
#define TESSERA_DATA_COLUMNS_DECOMPRESS_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.h"

namespace tessera::data {

enum class Codec { kSnappy, kGzip, kZstd, kLz4Block, kLz4Frame };

struct ByteBuffer {
  std::string_view bytes;
  std::shared_ptr<const void> owner;
};

StatusOr<ByteBuffer> Decompress(Codec codec, std::string_view bytes, int64_t size);

}  // namespace tessera::data

#endif  // TESSERA_DATA_COLUMNS_DECOMPRESS_H_
