// SPDX-License-Identifier: Apache-2.0
// Image files: JPEG and PNG.
//
//   TESSERA_ASSIGN_OR_RETURN(Image image, ReadImage("cat.jpg", {.channels = 3}));
//
// What decodes a kind of file is a target of its own (//data/image:jpeg through libjpeg, :png
// through libpng; :decoders are both) and registers itself where it is linked in. A program without
// it refuses such a file by the file's name.
//
// Files may be hostile: sizes are limited before anything is allocated, and damage gives a status
// that names the file. Transparency is dropped, 16-bit samples lose their lower byte, and rotation
// marks are not applied: what PIL's convert("RGB") gives.
#ifndef TESSERA_DATA_IMAGE_DECODE_H_
#define TESSERA_DATA_IMAGE_DECODE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
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

// The kinds of picture files that are told apart.
enum class ImageFormat : uint8_t { kJpeg, kPng };

// Of one kind of file, known by its first bytes.
using ImageDecoder = StatusOr<Image> (*)(std::string_view bytes, const std::string& source,
                                         int64_t max_pixels);

// Makes a decoder known where it is linked in.
struct ImageDecoderRegistration {
  ImageDecoderRegistration(ImageFormat format, ImageDecoder decoder);
};

// Whether a name ends as image files do (.jpg, .jpeg, .png, in any case).
bool IsImageName(std::string_view name);

}  // namespace tessera::data

#endif  // TESSERA_DATA_IMAGE_DECODE_H_
