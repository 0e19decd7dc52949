// SPDX-License-Identifier: Apache-2.0
#include "nn/interpolate.h"

namespace tessera::nn {

Interpolate::Interpolate(const InterpolateConfig& config, const Scope& scope)
    : Module(scope), config_(config) {
  TESSERA_CHECK(config.size.has_value() != (config.scale > 0), "interpolate", path(),
                ": either a size or a scale above 0 is needed, got ",
                config.size.has_value() ? "a size" : "no size", " and a scale of ", config.scale);
}

Tensor Interpolate::Forward(const Tensor& x_NCHW) const {
  return Call(x_NCHW, [&] {
    TESSERA_CHECK(x_NCHW.ndim() == 4, "interpolate", "[N, C, H, W] is needed, got ", x_NCHW);
    const auto scaled = [&](int64_t size) {
      return static_cast<int64_t>(config_.scale * static_cast<double>(size));
    };
    const Extent2d size =
        config_.size.value_or(Extent2d(scaled(x_NCHW.size(2)), scaled(x_NCHW.size(3))));
    return tessera::Interpolate(
        x_NCHW, size,
        {.mode = config_.mode, .align_corners = config_.align_corners, .scale = config_.scale});
  });
}

}  // namespace tessera::nn
