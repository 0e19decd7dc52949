// SPDX-License-Identifier: Apache-2.0
// A file's bytes from front to back, whatever it is compressed with.
//
//   TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, ByteSource::Open("a.jsonl.gz"));
//   TESSERA_ASSIGN_OR_RETURN(size_t n, source->Read(buffer, sizeof(buffer)));   // 0: the end
//
// The first bytes say what a file is: gzip (one or many members), zstd (one or many frames), or
// neither. Damage is a DataLoss that names the file, what is wrong and how many bytes were read
// before; the memory is a fixed one.
#ifndef TESSERA_DATA_DATASET_BYTE_SOURCE_H_
#define TESSERA_DATA_DATASET_BYTE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera::data {

class ByteSource {
 public:
  static StatusOr<std::unique_ptr<ByteSource>> Open(const std::string& path);
  virtual ~ByteSource() = default;

  // Up to `size` bytes, fewer only at the end.
  virtual StatusOr<size_t> Read(char* to, size_t size) = 0;
  // Passes over bytes; of a plain file at no cost.
  virtual Status Skip(int64_t size);
  // How much of the file itself has been read.
  virtual int64_t file_position() const = 0;
};

enum class Compression { kNone, kGzip, kZstd };
// By a file's first bytes.
Compression CompressionOfBytes(std::string_view begin);
// By the end of a file's name.
Compression CompressionOfName(std::string_view path);
// The name without that end.
std::string_view WithoutCompression(std::string_view path);

// `bytes` as one gzip member or zstd frame; of files, members one behind the other are one file.
std::string Compressed(std::string_view bytes, Compression compression);

// What a whole gzip, zlib or raw deflate text holds, as HTTP bodies are; at most `most` bytes.
StatusOr<std::string> Inflated(std::string_view bytes, size_t most);

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_BYTE_SOURCE_H_
