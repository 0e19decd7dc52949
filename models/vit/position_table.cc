// SPDX-License-Identifier: Apache-2.0
#include "models/vit/position_table.h"

#include <algorithm>
#include <cmath>

#include "ops/matmul/matmul.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

constexpr double kSharpness = -0.75;

// The cubic convolution kernel at distance x.
double CubicKernel(double x) {
  x = std::abs(x);
  if (x <= 1) return ((kSharpness + 2) * x - (kSharpness + 3)) * x * x + 1;
  if (x < 2) return ((kSharpness * x - 5 * kSharpness) * x + 8 * kSharpness) * x - 4 * kSharpness;
  return 0;
}

}  // namespace

std::vector<double> BicubicWeights(int64_t from, int64_t to) {
  std::vector<double> weights(static_cast<size_t>(to * from), 0.0);
  for (int64_t i = 0; i < to; ++i) {
    const double centre =
        (static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5;
    const auto left = static_cast<int64_t>(std::floor(centre));
    for (int64_t tap = left - 1; tap <= left + 2; ++tap) {
      const int64_t at = std::clamp<int64_t>(tap, 0, from - 1);
      weights[static_cast<size_t>(i * from + at)] += CubicKernel(centre - static_cast<double>(tap));
    }
  }
  return weights;
}

Tensor ResizePositions(const Tensor& table, int64_t grid, int64_t rows, int64_t columns) {
  if (rows == grid && columns == grid) return table;
  const int64_t width = table.size(2);
  const auto matrix = [&](int64_t to) {
    if (table.device().is_meta()) return Empty({to, grid}, table.dtype(), table.device());
    const Tensor weights = Tensor::FromVector(BicubicWeights(grid, to), {to, grid});
    return CopyTo(CastCopy(weights, table.dtype()), table.device());
  };
  const Tensor cls = Slice(table, 1, 0, 1);
  // Columns first, [grid, columns, C], then rows, [rows, columns * C].
  const Tensor picture = Reshape(Slice(table, 1, 1, grid * grid), {grid, grid, width});
  const Tensor wide = Matmul(matrix(columns), picture);
  const Tensor tall = Matmul(matrix(rows), Reshape(wide, {grid, columns * width}));
  return Cat({cls, Reshape(tall, {1, rows * columns, width})}, 1);
}

}  // namespace tessera::models
