// SPDX-License-Identifier: Apache-2.0
#include "ops/rotary/rotary.h"

#include <cmath>

#include "autograd/autograd.h"
#include "ops/rotary/rotary_kernel.h"

namespace tessera {
namespace {

int64_t Parts(const Tensor& positions) { return positions.ndim() == 3 ? positions.size(1) : 1; }

int64_t Pairs(const RotaryOptions& options) {
  return static_cast<int64_t>(options.inverse_frequencies.size());
}

Tensor Rotate(const Tensor& x, const Tensor& positions, const RotaryOptions& options,
              bool inverse) {
  Tensor y = Empty(x.shape(), x.dtype(), x.device());
  if (y.numel() == 0) return y;
  // Projections of several heads are read where they lie.
  const Tensor xr = x.stride(3) == 1 ? x : x.ContiguousCopy();
  rotary_kernel.Launch(x.device(), {.dtype = x.dtype(),
                                    .batch = x.size(0),
                                    .heads = x.size(1),
                                    .tokens = x.size(2),
                                    .head_dim = x.size(3),
                                    .parts = Parts(positions),
                                    .pairs = Pairs(options),
                                    .inverse_frequencies = options.inverse_frequencies.data(),
                                    .scale = options.scale,
                                    .interleaved = options.pairs == RotaryPairs::kInterleaved,
                                    .inverse = inverse,
                                    .positions = static_cast<const int64_t*>(positions.raw_data()),
                                    .x = xr.raw_data(),
                                    .x_batch_stride = xr.stride(0),
                                    .x_head_stride = xr.stride(1),
                                    .x_token_stride = xr.stride(2),
                                    .y = y.raw_data()});
  return y;
}

}  // namespace

std::vector<double> RotaryFrequencies(int64_t dims, double base) {
  TESSERA_CHECK(dims >= 0 && dims % 2 == 0, "rotary", dims, " features are not pairs");
  std::vector<double> frequencies;
  for (int64_t i = 0; i < dims / 2; ++i) {
    frequencies.push_back(
        std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dims)));
  }
  return frequencies;
}

Tensor Rotary(const Tensor& x, const Tensor& positions, const RotaryOptions& options) {
  TESSERA_CHECK(x.ndim() == 4 && IsFloating(x.dtype()) && positions.dtype() == DType::kInt64 &&
                    positions.device() == x.device() &&
                    (positions.ndim() == 2 || positions.ndim() == 3) &&
                    positions.size(0) == x.size(0) && positions.size(-1) == x.size(2),
                "rotary", "x ", x, " and positions ", positions);
  const int64_t parts = Parts(positions);
  TESSERA_CHECK(parts > 0 && x.size(3) % parts == 0, "rotary", "the features of ", x,
                " do not divide into the coordinates of ", positions);
  TESSERA_CHECK(2 * Pairs(options) <= x.size(3) / parts && Pairs(options) <= kMostRotaryPairs,
                "rotary", Pairs(options), " pairs of features, of ", x, " in ", parts, " parts");
  const Tensor at = positions.ContiguousCopy();
  Tensor y = Rotate(x, at, options, false);
  if (AnyRequiresGrad({x})) {
    Record("rotary", {x}, {y}, [at = SavedTensor(at), options](GradContext& ctx) {
      ctx.set(0, Rotate(ctx.grad(), at.Unpack(), options, true));
    });
  }
  return y;
}

}  // namespace tessera
