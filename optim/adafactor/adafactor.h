// SPDX-License-Identifier: Apache-2.0
// Adafactor (Shazeer and Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory
// Cost"), as T5 was trained with it.
//
//   Adafactor optimizer({{.parameters = parameters}}, {.lr = 1e-2});
//
// With g the gradient (times clip factor, over loss scale), t the step, lr the learning rate times
// the group's lr_scale, wd its weight decay, rms(x) the root mean square of all elements of x and
// b = 1 - t^beta2_decay, of a parameter [..., R, C]
//   r = b * r + (1 - b) * (mean over columns of g^2 + eps1)      [..., R]
//   c = b * c + (1 - b) * (mean over rows of g^2 + eps1)         [..., C]
//   u = g / sqrt(r c / (mean of r))          of a vector: g / sqrt(v), v = b * v + (1 - b) *
//   (g^2 + eps1)
//   u = lr * max(eps2, rms(p)) * u / max(1, rms(u) / clip_threshold)
//   m = beta1 * m + (1 - beta1) * u          (only with beta1; otherwise m = u)
//   p = p - lr * wd * p - m
// `scale_parameter` = false leaves max(eps2, rms(p)) out. torch.optim.Adafactor does the same while
// lr <= 1 / sqrt(t), which bounds its rate, and squares exceed eps1, which it takes maxima with.
//
// Means are of the whole parameter: under tensor parallelism they are summed over
// `Parameter::group`, and every rank has r and c whole. States: "exp_avg_sq_row" and
// "exp_avg_sq_col" (r, c), or "exp_avg_sq" (v) of a vector; "exp_avg" (m) with beta1. Dtypes and
// master weights as for Adam (optim/adam/adam.h).
#ifndef TESSERA_OPTIM_ADAFACTOR_ADAFACTOR_H_
#define TESSERA_OPTIM_ADAFACTOR_ADAFACTOR_H_

#include <optional>
#include <vector>

#include "base/options_fwd.h"
#include "optim/multi_tensor_optimizer.h"
#include "optim/tensor_step.h"

namespace tessera::optim {

struct AdafactorOptions {
  double lr = 1e-2;
  double beta2_decay = -0.8;
  double eps = 1e-30;
  double eps2 = 1e-3;
  double clip_threshold = 1.0;
  bool scale_parameter = true;
  std::optional<double> beta1 = {};

  static const OptionTable& Table();
};

class Adafactor final : public MultiTensorOptimizer {
 public:
  using Options = AdafactorOptions;
  static std::vector<StateKind> States(const Parameter& parameter, const Options& options);
  static bool NeedsWhole(const Parameter&, const Options&) { return true; }
  // Throws Error for options out of range, and as MultiTensorOptimizer does.
  explicit Adafactor(std::vector<ParameterGroup> groups, const AdafactorOptions& options = {});

 private:
  void Update(const std::vector<PendingUpdate>& updates, const StepInputs& inputs) override;
  void UpdateOne(const PendingUpdate& update, const TensorStep& step) const;
  Tensor Normalised(const PendingUpdate& update, const TensorStep& step) const;
  Tensor SizeOf(const PendingUpdate& update) const;

  AdafactorOptions options_;
};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_ADAFACTOR_ADAFACTOR_H_
