// SPDX-License-Identifier: Apache-2.0
#include "optim/grad_scaler.h"

#include <cmath>

#include "ops/elementwise/elementwise.h"
#include "optim/clip.h"
#include "optim/grad_scaler_kernel.h"

namespace tessera::optim {

Status CheckGradScalerOptions(const GradScalerOptions& o) {
  if (!(o.min_scale > 0) || !std::isfinite(o.min_scale)) {
    return InvalidArgument("min_scale is ", o.min_scale, ", expected a positive number");
  }
  // The scale is a float32.
  if (!(o.max_scale >= o.min_scale && o.max_scale <= 0x1p127)) {
    return InvalidArgument("max_scale is ", o.max_scale, ", expected min_scale (", o.min_scale,
                           ") to 2^127");
  }
  if (!(o.initial_scale >= o.min_scale && o.initial_scale <= o.max_scale)) {
    return InvalidArgument("initial_scale is ", o.initial_scale, ", expected min_scale (",
                           o.min_scale, ") to max_scale (", o.max_scale, ")");
  }
  if (!(o.growth_factor >= 1) || !std::isfinite(o.growth_factor)) {
    return InvalidArgument("growth_factor is ", o.growth_factor, ", expected at least 1");
  }
  if (!(o.backoff_factor > 0 && o.backoff_factor <= 1)) {
    return InvalidArgument("backoff_factor is ", o.backoff_factor, ", expected in (0, 1]");
  }
  if (o.growth_interval < 1) {
    return InvalidArgument("growth_interval is ", o.growth_interval, ", expected at least 1");
  }
  if (o.hysteresis < 1) {
    return InvalidArgument("hysteresis is ", o.hysteresis, ", expected at least 1");
  }
  return OkStatus();
}

GradScaler::GradScaler(const GradScalerOptions& options, Device device) : options_(options) {
  const Status status = CheckGradScalerOptions(options);
  TESSERA_CHECK(status.ok(), "grad_scaler", Message(status));
  scale_ = Full({}, options.initial_scale, DType::kFloat32, device);
  found_inf_ = Zeros({}, DType::kFloat32, device);
  good_steps_ = Zeros({}, DType::kInt64, device);
  tolerance_ = Full({}, static_cast<double>(options.hysteresis), DType::kInt64, device);
}

Tensor GradScaler::ScaleLoss(const Tensor& loss) const {
  TESSERA_CHECK(loss.dtype() == DType::kFloat32 || loss.dtype() == DType::kFloat64, "scale_loss",
                "the loss is ", loss, ", expected float32 or float64");
  return Mul(loss, scale_);
}

void GradScaler::CheckFinite(const std::vector<Parameter>& parameters, const Reduce& reduce) const {
  ClipOptions options;
  options.found_inf = found_inf_;
  options.reduce = reduce;
  ClipGradNorm(parameters, options);
}

void GradScaler::Unscale(const std::vector<Parameter>& parameters, const Reduce& reduce) const {
  ClipOptions options;
  options.loss_scale = scale_;
  options.found_inf = found_inf_;
  options.reduce = reduce;
  ClipGradNormInPlace(parameters, options);
}

void GradScaler::Update() {
  update_scale.Launch(
      scale_.device(),
      {options_.dynamic, options_.min_scale, options_.max_scale, options_.growth_factor,
       options_.backoff_factor, options_.growth_interval, options_.hysteresis,
       static_cast<float*>(scale_.raw_data()), static_cast<float*>(found_inf_.raw_data()),
       static_cast<int64_t*>(good_steps_.raw_data()),
       static_cast<int64_t*>(tolerance_.raw_data())});
  for (const Tensor& t : {scale_, found_inf_, good_steps_, tolerance_}) t.storage()->BumpVersion();
}

void GradScaler::VisitState(
    const std::function<void(const std::string& name, const Tensor& t)>& visit) const {
  visit("scale", scale_);
  visit("good_steps", good_steps_);
  visit("tolerance", tolerance_);
}

}  // namespace tessera::optim
