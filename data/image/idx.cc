// SPDX-License-Identifier: Apache-2.0
#include "data/image/idx.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/file.h"

namespace tessera::data {
namespace {

constexpr size_t kChunk = 1 << 20;

// The whole content of a file, unpacked if it is gzipped.
StatusOr<std::string> ReadUnpacked(const std::string& path, int64_t max_bytes) {
  if (!PathExists(path)) return NotFound(path, ": no such file");
  if (IsDirectory(path)) return InvalidArgument(path, ": a directory, not a file");
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) return NotFound(path, ": ", std::strerror(errno));
  std::string content;
  std::string chunk(kChunk, '\0');
  while (true) {
    const int count = gzread(file.get(), chunk.data(), static_cast<unsigned>(chunk.size()));
    if (count < 0) break;
    if (count == 0) break;
    content.append(chunk, 0, static_cast<size_t>(count));
    if (static_cast<int64_t>(content.size()) > max_bytes) {
      return InvalidArgument(path, ": more than ", max_bytes, " bytes");
    }
  }
  int code = Z_OK;
  const char* problem = gzerror(file.get(), &code);
  if (code != Z_OK && code != Z_STREAM_END) return DataLoss(path, ": damaged: ", problem);
  return content;
}

}  // namespace

Image IdxArray::ImageAt(int64_t i) const {
  TESSERA_CHECK(shape.size() == 3 && i >= 0 && i < shape[0], "idx", "image ", i, " of ",
                shape.empty() ? 0 : shape[0], " in an array of ", shape.size(), " dimensions");
  Image image{.height = shape[1], .width = shape[2], .channels = 1, .pixels = {}};
  const int64_t size = shape[1] * shape[2];
  image.pixels.assign(values.begin() + i * size, values.begin() + (i + 1) * size);
  return image;
}

StatusOr<IdxArray> ReadIdx(const std::string& path, int64_t max_bytes) {
  TESSERA_ASSIGN_OR_RETURN(const std::string bytes, ReadUnpacked(path, max_bytes));
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  if (bytes.size() < 4 || byte(0) != 0 || byte(1) != 0) {
    return InvalidArgument(path, ": not an IDX file");
  }
  if (byte(2) != 8) {
    return InvalidArgument(path, ": elements of IDX type ", int{byte(2)}, "; 8 (bytes) is known");
  }
  const size_t dims = byte(3);
  const size_t header = 4 + 4 * dims;
  if (dims == 0 || dims > 4 || bytes.size() < header) {
    return InvalidArgument(path, ": not an IDX file of 1 to 4 dimensions");
  }
  IdxArray array;
  int64_t count = 1;
  for (size_t d = 0; d < dims; ++d) {
    int64_t size = 0;
    for (size_t i = 0; i < 4; ++i) size = size << 8 | byte(4 + 4 * d + i);
    array.shape.push_back(size);
    if (size > 0 && count > max_bytes / size) {
      return InvalidArgument(path, ": an array of more than ", max_bytes, " bytes");
    }
    count *= size;
  }
  if (static_cast<int64_t>(bytes.size() - header) != count) {
    return DataLoss(path, ": ", bytes.size() - header, " bytes of elements; its header says ",
                    count);
  }
  array.values.assign(bytes.begin() + static_cast<int64_t>(header), bytes.end());
  return array;
}

}  // namespace tessera::data
