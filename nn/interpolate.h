// SPDX-License-Identifier: Apache-2.0
// Pictures of another size, as a layer: PyTorch's nn.Upsample.
//
//   Interpolate up({.scale = 2}, Child("up"));                            // twice as large
//   Interpolate to({.size = Extent2d(224), .mode = Interpolation::kBilinear}, Child("resize"));
//   body.Add<Interpolate>(InterpolateConfig{.scale = 2});                 // in a Sequential
//
// It has no parameters. ops/pooling/interpolate.h says which pixels it takes; those of a scale lie
// 1 / scale from each other, whatever the size is rounded to.
#ifndef TESSERA_NN_INTERPOLATE_H_
#define TESSERA_NN_INTERPOLATE_H_

#include <optional>

#include "nn/module.h"
#include "ops/pooling/interpolate.h"

namespace tessera::nn {

// Exactly one of `size` and `scale` is given; another number of them throws Error.
struct InterpolateConfig {
  std::optional<Extent2d> size = std::nullopt;
  double scale = 0;  // the result has floor(scale * size) pixels; 0: `size` says it
  Interpolation mode = Interpolation::kNearest;
  bool align_corners = false;  // bilinear only
};

class Interpolate : public Module {
 public:
  Interpolate(const InterpolateConfig& config, const Scope& scope);
  std::string_view kind() const override { return "Interpolate"; }
  Tensor Forward(const Tensor& x_NCHW) const;

 private:
  const InterpolateConfig config_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_INTERPOLATE_H_
