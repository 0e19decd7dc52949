// Image files: JPEG and PNG (through libjpeg and libpng), and the IDX arrays of MNIST.
//
//   TESSERA_ASSIGN_OR_RETURN(Image image, ReadImage("cat.jpg", {.channels = 3}));
//   TESSERA_ASSIGN_OR_RETURN(IdxArray images, ReadIdx("train-images-idx3-ubyte.gz"));
//
// Files may be hostile: sizes are limited before anything is allocated, and damage gives a status
// that names the file. Transparency is dropped, 16-bit samples lose their lower byte, and rotation
// marks are not applied: what PIL's convert("RGB") gives.
#ifndef TESSERA_DATA_IMAGE_DECODE_H_
#define TESSERA_DATA_IMAGE_DECODE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "data/image/image.h"

namespace tessera::data {

struct ImageOptions {
  int64_t channels = 0;                             // 1 or 3; 0: as in the file
  int64_t max_pixels = int64_t{100} * 1000 * 1000;  // larger pictures are refused
};

// By the first bytes, not the name. `source` (a path) begins the message of a failure.
StatusOr<Image> DecodeImage(std::string_view bytes, const std::string& source,
                            const ImageOptions& options = {});
StatusOr<Image> ReadImage(const std::string& path, const ImageOptions& options = {});

// Of one kind of file.
StatusOr<Image> DecodeJpeg(std::string_view bytes, const std::string& source, int64_t max_pixels);
StatusOr<Image> DecodePng(std::string_view bytes, const std::string& source, int64_t max_pixels);

// Whether a name ends as image files do (.jpg, .jpeg, .png, in any case).
bool IsImageName(std::string_view name);

// An array of bytes: [10000, 28, 28] images or [10000] labels.
struct IdxArray {
  std::vector<int64_t> shape;
  std::vector<uint8_t> values;

  // Entry i of the first dim of [count, height, width].
  Image ImageAt(int64_t i) const;
};

// Plain or gzipped. InvalidArgument for elements that are not bytes, a size that the file does not
// have, or more than `max_bytes`.
StatusOr<IdxArray> ReadIdx(const std::string& path, int64_t max_bytes = int64_t{1} << 32);

}  // namespace tessera::data

#endif  // TESSERA_DATA_IMAGE_DECODE_H_
