// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "data/image/image.h"

namespace tessera::data {
namespace {

constexpr int kFractionBits = 22;

double Triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

// Keys' cubic convolution with a = -1/2.
double Cubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0;
}

double Sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}
double Lanczos(double x) { return -3 <= x && x < 3 ? Sinc(x) * Sinc(x / 3) : 0; }

struct Filter {
  double (*kernel)(double);
  double support;
};

Filter FilterOf(Resample resample) {
  switch (resample) {
    case Resample::kBilinear:
      return {Triangle, 1};
    case Resample::kBicubic:
      return {Cubic, 2};
    case Resample::kLanczos:
      return {Lanczos, 3};
    default:
      throw Error("resize", "unknown filter");
  }
}

// The samples of the source that one sample of the result is made of.
struct Taps {
  int64_t first = 0;
  std::vector<int32_t> weights;  // fixed point
};

std::vector<Taps> MakeTaps(int64_t from, int64_t to, const Filter& filter) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double stretch = std::max(scale, 1.0);
  const double support = filter.support * stretch;
  std::vector<Taps> taps(static_cast<size_t>(to));
  std::vector<double> weights;
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(static_cast<int64_t>(centre - support + 0.5), 0);
    const auto end = std::min<int64_t>(static_cast<int64_t>(centre + support + 0.5), from);
    weights.clear();
    double sum = 0;
    const double shrink = 1.0 / stretch;
    for (int64_t x = first; x < end; ++x) {
      weights.push_back(filter.kernel((static_cast<double>(x) - centre + 0.5) * shrink));
      sum += weights.back();
    }
    Taps& tap = taps[static_cast<size_t>(i)];
    tap.first = first;
    for (double w : weights) {
      if (sum != 0) w *= 1.0 / sum;
      const double scaled = w * (1 << kFractionBits);
      tap.weights.push_back(static_cast<int32_t>(scaled + (w < 0 ? -0.5 : 0.5)));
    }
  }
  return taps;
}

uint8_t Rounded(int64_t sum) {
  return static_cast<uint8_t>(std::clamp<int64_t>(sum >> kFractionBits, 0, 255));
}

constexpr int64_t kHalf = int64_t{1} << (kFractionBits - 1);

Image ResizeColumns(const Image& image, int64_t width, const Filter& filter) {
  const std::vector<Taps> taps = MakeTaps(image.width, width, filter);
  const int64_t channels = image.channels;
  Image out{.height = image.height, .width = width, .channels = channels, .pixels = {}};
  out.pixels.resize(static_cast<size_t>(image.height * width * channels));
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* row = image.pixels.data() + y * image.width * channels;
    uint8_t* to = out.pixels.data() + y * width * channels;
    for (const Taps& tap : taps) {
      for (int64_t c = 0; c < channels; ++c) {
        int64_t sum = kHalf;
        const uint8_t* p = row + tap.first * channels + c;
        for (const int32_t weight : tap.weights) {
          sum += int64_t{weight} * *p;
          p += channels;
        }
        *to++ = Rounded(sum);
      }
    }
  }
  return out;
}

Image ResizeRows(const Image& image, int64_t height, const Filter& filter) {
  const std::vector<Taps> taps = MakeTaps(image.height, height, filter);
  const int64_t row = image.width * image.channels;
  Image out{.height = height, .width = image.width, .channels = image.channels, .pixels = {}};
  out.pixels.resize(static_cast<size_t>(height * row));
  std::vector<int64_t> sums(static_cast<size_t>(row));
  for (int64_t y = 0; y < height; ++y) {
    const Taps& tap = taps[static_cast<size_t>(y)];
    std::fill(sums.begin(), sums.end(), kHalf);
    for (size_t k = 0; k < tap.weights.size(); ++k) {
      const uint8_t* from = image.pixels.data() + (tap.first + static_cast<int64_t>(k)) * row;
      for (size_t x = 0; x < sums.size(); ++x) sums[x] += int64_t{tap.weights[k]} * from[x];
    }
    uint8_t* to = out.pixels.data() + y * row;
    for (size_t x = 0; x < sums.size(); ++x) to[x] = Rounded(sums[x]);
  }
  return out;
}

Image Nearest(const Image& image, int64_t height, int64_t width) {
  Image out{.height = height, .width = width, .channels = image.channels, .pixels = {}};
  out.pixels.reserve(static_cast<size_t>(height * width * image.channels));
  const auto source = [](int64_t at, int64_t from, int64_t to) {
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    return std::min(static_cast<int64_t>((static_cast<double>(at) + 0.5) * scale), from - 1);
  };
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < image.channels; ++c) {
        out.pixels.push_back(
            image.at(source(y, image.height, height), source(x, image.width, width), c));
      }
    }
  }
  return out;
}

}  // namespace

Image Resize(const Image& image, int64_t height, int64_t width, Resample resample) {
  TESSERA_CHECK(image.height > 0 && image.width > 0 && height > 0 && width > 0, "resize",
                image.height, " x ", image.width, " to ", height, " x ", width);
  if (height == image.height && width == image.width) return image;
  if (resample == Resample::kNearest) return Nearest(image, height, width);
  const Filter filter = FilterOf(resample);
  const auto columns = [&](const Image& from) {
    return width == from.width ? from : ResizeColumns(from, width, filter);
  };
  const auto rows = [&](const Image& from) {
    return height == from.height ? from : ResizeRows(from, height, filter);
  };
  // The order shows, since pixels are rounded in between.
  const bool rows_first =
      height < image.height && image.height - height > 2 * (image.width - width);
  return rows_first ? columns(rows(image)) : rows(columns(image));
}

}  // namespace tessera::data
