// SPDX-License-Identifier: Apache-2.0
#include "data/columns/decompress.h"

#include <lz4.h>
#include <lz4frame.h>
#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <limits>

namespace tessera::data {
namespace {

// How many bytes one compressed byte can become at most. A back reference copies 64 bytes and takes
// two or three (Snappy), copies 258 and takes two bits (deflate), copies 128 KiB and takes four
// bytes (Zstandard), or copies 255 for each further byte (LZ4).
int64_t LargestRatio(Codec codec) {
  switch (codec) {
    case Codec::kSnappy:
      return 32;
    case Codec::kGzip:
      return 1032;
    case Codec::kZstd:
      return int64_t{1} << 15;
    case Codec::kLz4Block:
    case Codec::kLz4Frame:
      return 255;
  }
  return 1;
}

bool FromGzip(std::string_view bytes, char* out, size_t size) {
  z_stream stream{};
  // 32: a header of gzip or of zlib.
  if (inflateInit2(&stream, 15 + 32) != Z_OK) return false;
  size_t taken = 0;
  size_t made = 0;
  int result = Z_OK;
  // Members may follow each other; sizes of zlib are 32 bits wide.
  constexpr size_t kPiece = size_t{1} << 30;
  while (result == Z_OK) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + taken));
    stream.avail_in = static_cast<uInt>(std::min(bytes.size() - taken, kPiece));
    stream.next_out = reinterpret_cast<Bytef*>(out + made);
    stream.avail_out = static_cast<uInt>(std::min(size - made, kPiece));
    const uInt in = stream.avail_in;
    const uInt room = stream.avail_out;
    result = inflate(&stream, Z_NO_FLUSH);
    taken += in - stream.avail_in;
    made += room - stream.avail_out;
    if (result == Z_STREAM_END && taken < bytes.size()) result = inflateReset(&stream);
  }
  inflateEnd(&stream);
  return result == Z_STREAM_END && made == size;
}

bool FromZstd(std::string_view bytes, char* out, size_t size) {
  thread_local const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(),
                                                                                ZSTD_freeDCtx);
  return context != nullptr &&
         ZSTD_decompressDCtx(context.get(), out, size, bytes.data(), bytes.size()) == size;
}

bool FromLz4Frame(std::string_view bytes, char* out, size_t size) {
  LZ4F_dctx* context = nullptr;
  if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)) != 0) return false;
  size_t taken = 0;
  size_t made = 0;
  size_t wanted = 1;
  while (wanted != 0) {
    size_t in = bytes.size() - taken;
    size_t room = size - made;
    wanted = LZ4F_decompress(context, out + made, &room, bytes.data() + taken, &in, nullptr);
    if (LZ4F_isError(wanted) != 0 || (in == 0 && room == 0)) break;
    taken += in;
    made += room;
  }
  LZ4F_freeDecompressionContext(context);
  return wanted == 0 && made == size && taken == bytes.size();
}

// What the bytes themselves say of their size, where that is another one.
bool SaysOtherwise(Codec codec, std::string_view bytes, size_t size) {
  if (codec == Codec::kSnappy) {
    size_t says = 0;
    return !snappy::GetUncompressedLength(bytes.data(), bytes.size(), &says) || says != size;
  }
  if (codec != Codec::kZstd) return false;
  const unsigned long long says = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  return says == ZSTD_CONTENTSIZE_ERROR || (says != ZSTD_CONTENTSIZE_UNKNOWN && says > size);
}

bool Fill(Codec codec, std::string_view bytes, char* out, size_t size) {
  switch (codec) {
    case Codec::kSnappy:
      return snappy::RawUncompress(bytes.data(), bytes.size(), out);
    case Codec::kGzip:
      return FromGzip(bytes, out, size);
    case Codec::kZstd:
      return FromZstd(bytes, out, size);
    case Codec::kLz4Block:
      return bytes.size() <= std::numeric_limits<int>::max() &&
             size <= std::numeric_limits<int>::max() &&
             LZ4_decompress_safe(bytes.data(), out, static_cast<int>(bytes.size()),
                                 static_cast<int>(size)) == static_cast<int64_t>(size);
    case Codec::kLz4Frame:
      return FromLz4Frame(bytes, out, size);
  }
  return false;
}

}  // namespace

StatusOr<ByteBuffer> Decompress(Codec codec, std::string_view bytes, int64_t size) {
  if (size == 0) return ByteBuffer{};
  if (size < 0 || size / LargestRatio(codec) > static_cast<int64_t>(bytes.size()) ||
      SaysOtherwise(codec, bytes, static_cast<size_t>(size))) {
    return DataLoss(bytes.size(), " compressed bytes cannot become the ", size,
                    " that they should");
  }
  // Not filled with zeros first.
  const std::shared_ptr<char[]> buffer =
      std::make_shared_for_overwrite<char[]>(static_cast<size_t>(size));
  if (!Fill(codec, bytes, buffer.get(), static_cast<size_t>(size))) {
    return DataLoss("the compressed bytes are damaged");
  }
  return ByteBuffer{{buffer.get(), static_cast<size_t>(size)}, buffer};
}

}  // namespace tessera::data
