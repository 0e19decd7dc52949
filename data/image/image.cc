// SPDX-License-Identifier: Apache-2.0
#include "data/image/image.h"

#include <algorithm>

#include "base/error.h"

namespace tessera::data {

Image WithChannels(const Image& image, int64_t channels) {
  TESSERA_CHECK(channels == 1 || channels == 3, "image", channels, " channels; 1 or 3 are known");
  if (image.channels == channels) return image;
  Image out{.height = image.height, .width = image.width, .channels = channels, .pixels = {}};
  const size_t count = static_cast<size_t>(image.height * image.width);
  out.pixels.resize(count * static_cast<size_t>(channels));
  for (size_t i = 0; i < count; ++i) {
    if (channels == 3) {
      std::fill_n(out.pixels.begin() + static_cast<int64_t>(3 * i), 3, image.pixels[i]);
    } else {
      const uint8_t* rgb = image.pixels.data() + 3 * i;
      const uint32_t sum = 19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 0x8000u;
      out.pixels[i] = static_cast<uint8_t>(sum >> 16);
    }
  }
  return out;
}

Image Crop(const Image& image, const Rectangle& part) {
  TESSERA_CHECK(part.top >= 0 && part.left >= 0 && part.height > 0 && part.width > 0 &&
                    part.top + part.height <= image.height && part.left + part.width <= image.width,
                "crop", part.height, " x ", part.width, " at ", part.top, ", ", part.left,
                " of a picture of ", image.height, " x ", image.width);
  Image out{.height = part.height, .width = part.width, .channels = image.channels, .pixels = {}};
  const int64_t row = part.width * image.channels;
  out.pixels.reserve(static_cast<size_t>(part.height * row));
  for (int64_t y = 0; y < part.height; ++y) {
    const int64_t begin = ((part.top + y) * image.width + part.left) * image.channels;
    out.pixels.insert(out.pixels.end(), image.pixels.begin() + begin,
                      image.pixels.begin() + begin + row);
  }
  return out;
}

Image PadBorder(const Image& image, int64_t border) {
  Image out{.height = image.height + 2 * border,
            .width = image.width + 2 * border,
            .channels = image.channels,
            .pixels = {}};
  out.pixels.resize(static_cast<size_t>(out.height * out.width * out.channels), 0);
  const int64_t row = image.width * image.channels;
  for (int64_t y = 0; y < image.height; ++y) {
    std::copy_n(image.pixels.begin() + y * row, row,
                out.pixels.begin() + ((y + border) * out.width + border) * out.channels);
  }
  return out;
}

Image CenterCrop(const Image& image, int64_t height, int64_t width) {
  // Rounded as Hugging Face's center_crop does: the upper half of an odd rest is smaller, and of an
  // odd border around a smaller picture the larger.
  const int64_t missing = std::max<int64_t>({height - image.height, width - image.width, 0});
  if (missing == 0) {
    return Crop(image, {.top = (image.height - height) / 2,
                        .left = (image.width - width) / 2,
                        .height = height,
                        .width = width});
  }
  const int64_t tall = std::max(height, image.height);
  const int64_t wide = std::max(width, image.width);
  Image padded{.height = tall, .width = wide, .channels = image.channels, .pixels = {}};
  padded.pixels.resize(static_cast<size_t>(tall * wide * image.channels), 0);
  const int64_t top = (tall - image.height + 1) / 2;
  const int64_t left = (wide - image.width + 1) / 2;
  const int64_t row = image.width * image.channels;
  for (int64_t y = 0; y < image.height; ++y) {
    std::copy_n(image.pixels.begin() + y * row, row,
                padded.pixels.begin() + ((y + top) * wide + left) * image.channels);
  }
  return Crop(
      padded,
      {.top = (tall - height) / 2, .left = (wide - width) / 2, .height = height, .width = width});
}

Image FlipHorizontally(const Image& image) {
  Image out = image;
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      for (int64_t c = 0; c < image.channels; ++c) {
        out.pixels[static_cast<size_t>((y * image.width + x) * image.channels + c)] =
            image.at(y, image.width - 1 - x, c);
      }
    }
  }
  return out;
}

}  // namespace tessera::data
