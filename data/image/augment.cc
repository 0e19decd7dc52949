// SPDX-License-Identifier: Apache-2.0
#include "data/image/augment.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tessera::data {
namespace {

constexpr int kTries = 10;

// Which number of a key's stream is what; each try of a crop takes four from kCropFrom on.
enum Draw : uint64_t { kFlip = 0, kBorderTop = 1, kBorderLeft = 2, kCropFrom = 4 };

// Evenly from [0, count).
int64_t Pick(const RandomKey& key, uint64_t draw, int64_t count) {
  const double u = UniformDouble(key, draw);
  return std::min(static_cast<int64_t>(u * static_cast<double>(count)), count - 1);
}

// A rectangle of a random area and aspect ratio; the largest one in the middle if none fits.
Rectangle RandomPart(const Image& image, double min_area, const RandomKey& key) {
  const double area = static_cast<double>(image.height * image.width);
  const double widest = std::log(4.0 / 3.0);
  for (uint64_t t = 0; t < kTries; ++t) {
    const uint64_t draw = kCropFrom + 4 * t;
    const double target = area * (min_area + (1 - min_area) * UniformDouble(key, draw));
    const double ratio = std::exp(widest * (2 * UniformDouble(key, draw + 1) - 1));
    const auto width = static_cast<int64_t>(std::lround(std::sqrt(target * ratio)));
    const auto height = static_cast<int64_t>(std::lround(std::sqrt(target / ratio)));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    return {.top = Pick(key, draw + 2, image.height - height + 1),
            .left = Pick(key, draw + 3, image.width - width + 1),
            .height = height,
            .width = width};
  }
  const int64_t height = std::max<int64_t>(1, std::min(image.height, image.width * 4 / 3));
  const int64_t width = std::max<int64_t>(1, std::min(image.width, image.height * 4 / 3));
  return {.top = (image.height - height) / 2,
          .left = (image.width - width) / 2,
          .height = height,
          .width = width};
}

}  // namespace

RandomKey AugmentKey(uint64_t seed, uint64_t position) {
  return RandomKey::FromSeed(seed).With("augment").With(position);
}

Image Augment(const Image& image, const AugmentOptions& options, const RandomKey& key) {
  TESSERA_CHECK(options.height > 0 && options.width > 0 && options.border >= 0 &&
                    options.min_area > 0 && options.min_area <= 1,
                "augment", "to ", options.height, " x ", options.width, ", border ", options.border,
                ", area from ", options.min_area);
  const bool crops = options.min_area < 1;
  Image out = Resize(crops ? Crop(image, RandomPart(image, options.min_area, key)) : image,
                     options.height, options.width, options.resample);
  if (options.border > 0) {
    const int64_t places = 2 * options.border + 1;
    out = Crop(PadBorder(out, options.border), {.top = Pick(key, kBorderTop, places),
                                                .left = Pick(key, kBorderLeft, places),
                                                .height = options.height,
                                                .width = options.width});
  }
  return UniformDouble(key, kFlip) < options.flip_probability ? FlipHorizontally(out) : out;
}

}  // namespace tessera::data
