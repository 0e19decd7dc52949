// SPDX-License-Identifier: Apache-2.0
#include "data/columns/decompress.h"

#include <gtest/gtest.h>
#include <lz4.h>
#include <lz4frame.h>
#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::data {
namespace {

std::string Gzipped(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Compressed(Codec codec, const std::string& text) {
  std::string out;
  switch (codec) {
    case Codec::kSnappy:
      snappy::Compress(text.data(), text.size(), &out);
      return out;
    case Codec::kGzip:
      return Gzipped(text);
    case Codec::kZstd:
      out.resize(ZSTD_compressBound(text.size()));
      out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
      return out;
    case Codec::kLz4Block: {
      const auto size = static_cast<int>(text.size());
      out.resize(static_cast<size_t>(LZ4_compressBound(size)));
      out.resize(static_cast<size_t>(
          LZ4_compress_default(text.data(), out.data(), size, static_cast<int>(out.size()))));
      return out;
    }
    case Codec::kLz4Frame:
      out.resize(LZ4F_compressFrameBound(text.size(), nullptr));
      out.resize(LZ4F_compressFrame(out.data(), out.size(), text.data(), text.size(), nullptr));
      return out;
  }
  return out;
}

class DecompressTest : public testing::TestWithParam<Codec> {};

TEST_P(DecompressTest, GivesBackWhatWasCompressed) {
  for (const std::string& text :
       {std::string("a"), std::string(300'000, 'x'), std::string("one two three one two three")}) {
    const std::string stored = Compressed(GetParam(), text);
    const auto bytes = Decompress(GetParam(), stored, std::ssize(text));
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
    EXPECT_EQ(bytes->bytes, text);
  }
}

TEST_P(DecompressTest, RefusesAnotherSize) {
  const std::string text = "one two three one two three";
  const std::string stored = Compressed(GetParam(), text);
  for (const int64_t size : {int64_t{26}, int64_t{28}, int64_t{1} << 40, int64_t{-1}}) {
    EXPECT_EQ(Decompress(GetParam(), stored, size).status().code(), StatusCode::kDataLoss) << size;
  }
}

TEST_P(DecompressTest, RefusesBytesThatAreCutOff) {
  const std::string text = "one two three one two three";
  const std::string stored = Compressed(GetParam(), text);
  for (size_t size = 0; size + 5 < stored.size(); ++size) {
    const auto bytes = Decompress(GetParam(), stored.substr(0, size), std::ssize(text));
    EXPECT_EQ(bytes.status().code(), StatusCode::kDataLoss) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, DecompressTest,
                         testing::Values(Codec::kSnappy, Codec::kGzip, Codec::kZstd,
                                         Codec::kLz4Block, Codec::kLz4Frame));

TEST(GzipTest, ReadsMembersBehindEachOther) {
  const std::string stored = Gzipped("one ") + Gzipped("two");
  const auto bytes = Decompress(Codec::kGzip, stored, 7);
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  EXPECT_EQ(bytes->bytes, "one two");
}

}  // namespace
}  // namespace tessera::data
