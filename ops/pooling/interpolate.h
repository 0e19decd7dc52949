// SPDX-License-Identifier: Apache-2.0
// Pictures of another size.
//
//   Tensor up = Interpolate(x_NCHW, {2 * h, 2 * w});
//   Tensor smooth = Interpolate(x_NCHW, 224, {.mode = Interpolation::kBilinear});
//
// As PyTorch's F.interpolate(size=...) has it, x [N, C, H, W]. Pixel i of n made of m is
//   nearest    pixel floor(i m / n);
//   bilinear   between the pixels around (i + 1/2) m / n - 1/2, at least 0, or, with align_corners,
//              around i (m - 1) / (n - 1).
// With a `scale`, 1 / scale takes the place of m / n, as F.interpolate(scale_factor=...) has it:
// the two differ where scale * m is no whole number. m / n stays where n is m, with align_corners,
// and for the nearest pixel where n is 2 m. The nearest pixel is computed in float32, as there.
// Floating dtypes, computed in float32 (float64 for float64). Gradients flow to x.
#ifndef TESSERA_OPS_POOLING_INTERPOLATE_H_
#define TESSERA_OPS_POOLING_INTERPOLATE_H_

#include "core/tensor.h"
#include "ops/extent2d.h"

namespace tessera {

enum class Interpolation { kNearest, kBilinear };

// How values between pixels are made.
struct InterpolateOptions {
  Interpolation mode = Interpolation::kNearest;
  bool align_corners = false;  // bilinear only
  // How many pixels of the result lie in one of x. The size is then floor(scale * size of x), else
  // it throws Error. 0: what the sizes say.
  double scale = 0;
};

Tensor Interpolate(const Tensor& x, Extent2d size, const InterpolateOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_OPS_POOLING_INTERPOLATE_H_
