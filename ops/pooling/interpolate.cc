// SPDX-License-Identifier: Apache-2.0
#include "ops/pooling/interpolate.h"

#include <algorithm>
#include <cmath>

#include "ops/pooling/blend.h"

namespace tessera {
namespace {

// As PyTorch's: 1 / scale is rounded to float32, and twice the size or the same need no scale.
BlendTable Nearest(int64_t in, int64_t out, double scale) {
  BlendTable table{in, {}, {}};
  const bool by_sizes = scale == 0 || out == in || out == 2 * in;
  const auto step = static_cast<float>(1 / scale);
  for (int64_t i = 0; i < out; ++i) {
    const int64_t pixel =
        by_sizes ? i * in / out : static_cast<int64_t>(static_cast<float>(i) * step);
    table.begin.push_back(std::min(pixel, in - 1));
    table.weights.push_back({1.0});
  }
  return table;
}

BlendTable Linear(int64_t in, int64_t out, bool align_corners, double scale) {
  BlendTable table{in, {}, {}};
  const bool by_sizes = scale == 0 || out == in;
  const double numerator = by_sizes ? static_cast<double>(in) : 1;
  const double denominator = by_sizes ? static_cast<double>(out) : scale;
  for (int64_t i = 0; i < out; ++i) {
    const auto at = static_cast<double>(i);
    double place = 0;
    if (!align_corners) {
      place = std::max(0.0, (at + 0.5) * numerator / denominator - 0.5);
    } else if (out > 1) {
      place = at * static_cast<double>(in - 1) / static_cast<double>(out - 1);
    }
    const int64_t left = std::min(static_cast<int64_t>(place), in - 1);
    const double share = place - static_cast<double>(left);
    table.begin.push_back(left);
    if (left + 1 < in && share > 0) {
      table.weights.push_back({1.0 - share, share});
    } else {
      table.weights.push_back({1.0});
    }
  }
  return table;
}

}  // namespace

Tensor Interpolate(const Tensor& x, Extent2d size, const InterpolateOptions& options) {
  constexpr const char* kName = "interpolate";
  TESSERA_CHECK(x.ndim() == 4 && IsFloating(x.dtype()) && x.size(2) > 0 && x.size(3) > 0 &&
                    size.h > 0 && size.w > 0,
                kName, "cannot make pictures of ", size.h, " x ", size.w, " of ", x);
  const bool nearest = options.mode == Interpolation::kNearest;
  TESSERA_CHECK(!nearest || !options.align_corners, kName,
                "align_corners means nothing to the nearest pixel");
  const double scale = options.scale;
  const auto scaled = [&](int64_t in, int64_t out) {
    return std::floor(scale * static_cast<double>(in)) == static_cast<double>(out);
  };
  TESSERA_CHECK(scale == 0 || (scale > 0 && scaled(x.size(2), size.h) && scaled(x.size(3), size.w)),
                kName, "a scale of ", scale, " does not make pictures of ", size.h, " x ", size.w,
                " of ", x);
  const auto table = [&](int64_t in, int64_t out) {
    return nearest ? Nearest(in, out, scale) : Linear(in, out, options.align_corners, scale);
  };
  return BlendPlanes(kName, x, table(x.size(2), size.h), table(x.size(3), size.w),
                     {x.size(0), x.size(1), size.h, size.w});
}

}  // namespace tessera
