// SPDX-License-Identifier: Apache-2.0
// Loss scaling for float16 (Micikevicius et al. 2018): the loss is multiplied by a scale, so that
// small gradients do not vanish; the step divides it out again, and is left out when a gradient
// overflowed.
//
//   GradScaler scaler({}, device);
//   Backward(scaler.ScaleLoss(loss));
//   ClipResult clip = ClipGradNorm(parameters, {.max_norm = 1.0, .loss_scale = scaler.scale(),
//                                               .found_inf = scaler.found_inf()});
//   optimizer.Step(scaler.Inputs(clip.factor));     // changes nothing after an overflow
//   scaler.Update();
//
// Without clipping, `CheckFinite` is in the place of ClipGradNorm. Nothing is read back to the
// host.
#ifndef TESSERA_OPTIM_GRAD_SCALER_H_
#define TESSERA_OPTIM_GRAD_SCALER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/tensor.h"
#include "optim/optimizer.h"
#include "optim/parameter.h"

namespace tessera::optim {

// After `growth_interval` steps in a row without overflow the scale grows by `growth_factor`. A
// step that overflowed begins a new row and uses up one of `hysteresis` tolerances; when none is
// left, every overflow multiplies the scale by `backoff_factor`. A growth renews the tolerances (as
// in Megatron-LM's DynamicGradScaler). The scale stays within [min_scale, max_scale].
struct GradScalerOptions {
  bool dynamic = true;  // otherwise the scale stays initial_scale
  double initial_scale = 65536;
  double min_scale = 1;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 1000;
  int64_t hysteresis = 2;
  double max_scale = 4294967296;
};

// Refuses by name an option out of range: scales must be positive and in order, growth_factor >= 1,
// 0 < backoff_factor <= 1, growth_interval and hysteresis >= 1.
Status CheckGradScalerOptions(const GradScalerOptions& options);

class GradScaler {
 public:
  // Throws Error for options that CheckGradScalerOptions refuses.
  explicit GradScaler(const GradScalerOptions& options, Device device = Device::Cpu());

  const GradScalerOptions& options() const { return options_; }

  // 0-d float32: the scale, and the flag that is 1 after an overflow until `Update`.
  const Tensor& scale() const { return scale_; }
  const Tensor& found_inf() const { return found_inf_; }

  // loss * scale, on the tape. float32 or float64; throws Error for others, where it would
  // overflow.
  Tensor ScaleLoss(const Tensor& loss) const;

  // As ClipOptions::reduce.
  using Reduce = std::function<void(const Tensor& words)>;
  // Sets found_inf unless every gradient is finite. (Float64 gradients beyond 1e154 count as
  // infinite.)
  void CheckFinite(const std::vector<Parameter>& parameters, const Reduce& reduce = nullptr) const;
  // Likewise, and divides the gradients by the scale in place, for those who want to look at them.
  // The step is then to be given found_inf only.
  void Unscale(const std::vector<Parameter>& parameters, const Reduce& reduce = nullptr) const;

  // What Optimizer::Step needs.
  StepInputs Inputs(const Tensor& clip_factor = Tensor()) const {
    return {.clip_factor = clip_factor, .loss_scale = scale_, .found_inf = found_inf_};
  }

  // Adjusts the scale after a step and clears found_inf.
  void Update();

  // The states "scale" (float32), "good_steps" and "tolerance" (int64), all 0-d: the tensors
  // themselves, so that writing into them restores.
  void VisitState(const std::function<void(const std::string& name, const Tensor& t)>& visit) const;

 private:
  GradScalerOptions options_;
  Tensor scale_;
  Tensor found_inf_;
  Tensor good_steps_;
  Tensor tolerance_;
};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_GRAD_SCALER_H_
