// SPDX-License-Identifier: Apache-2.0
// Pictures in memory, and what is done to them before they become numbers.
//
//   TESSERA_ASSIGN_OR_RETURN(Image image, ReadImage("cat.jpg"));      // decode.h
//   Image square = Resize(Crop(WithChannels(image, 3), {.height = 100, .width = 100}), 224, 224,
//                         Resample::kBilinear);
//
// 8 bits per sample, rows from the top, samples of a pixel side by side: one channel (grey) or
// three (red, green, blue). Misuse (a crop outside of the picture) throws Error.
#ifndef TESSERA_DATA_IMAGE_IMAGE_H_
#define TESSERA_DATA_IMAGE_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::data {

struct Image {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  std::vector<uint8_t> pixels;  // [height][width][channels]

  uint8_t at(int64_t row, int64_t column, int64_t channel) const {
    return pixels[static_cast<size_t>((row * width + column) * channels + channel)];
  }
};

// Grey (1) or red, green, blue (3). Grey is (19595 r + 38470 g + 7471 b + 2^15) / 2^16 (ITU-R 601).
Image WithChannels(const Image& image, int64_t channels);

// A part of a picture, in pixels.
struct Rectangle {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
};
Image Crop(const Image& image, const Rectangle& part);
// The middle height x width; black where the picture is smaller.
Image CenterCrop(const Image& image, int64_t height, int64_t width);
// `border` black pixels on every side.
Image PadBorder(const Image& image, int64_t border);
// Left becomes right.
Image FlipHorizontally(const Image& image);

// Filters, numbered as PIL and Hugging Face's `resample` do.
enum class Resample { kNearest = 0, kLanczos = 1, kBilinear = 2, kBicubic = 3 };

// Separable resampling with antialiasing: when shrinking, the filter's support grows with the
// factor. The pixels are those of PIL 13, bit for bit: 22-bit fixed point, rounded between the two
// directions; along rows first, unless the height loses more than twice the pixels that the width
// does. (Older versions always begin along rows, and then differ in the rounding.)
Image Resize(const Image& image, int64_t height, int64_t width, Resample filter);

}  // namespace tessera::data

#endif  // TESSERA_DATA_IMAGE_IMAGE_H_
