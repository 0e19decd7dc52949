// SPDX-License-Identifier: Apache-2.0
// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon), as torch.optim.Muon, with
// AdamW for what is no matrix between features.
//
//   Muon optimizer(SplitByDecay(parameters, {.weight_decay = 0.1}), {.lr = 0.02});
//
// With g the gradient (times clip factor, over loss scale), lr the learning rate times the group's
// lr_scale and wd its weight decay, of a matrix p [R, C]
//   m = momentum * m + (1 - momentum) * g
//   u = nesterov ? momentum * m + (1 - momentum) * g : m
//   x = u / max(|u|, eps);  `ns_steps` times, with (a, b, c) = ns_coefficients and x transposed
//       where R > C:   y = x x^T,  x = a x + (b y + c y y) x
//   p = p - lr * wd * p - lr * s * x
// with s = sqrt(max(1, R / C)) for adjust_lr_fn "original", 0.2 sqrt(max(R, C)) for
// "match_rms_adamw" (Liu et al. 2025, which lets AdamW's learning rates stand). The iteration
// (Newton and Schulz's, of fifth order) brings the singular values near 1. It computes in float32
// (float64 for float64 parameters); PyTorch's in bfloat16.
//
// R and C are the checkpoint's: a fused c_attn [C, 3 C] is one matrix. Under tensor parallelism the
// update is put together over `Parameter::group` and every rank iterates on the whole; the momentum
// stays with the part. Vectors, tensors of more dims and tables (`Parameter::table`: embeddings and
// heads) are updated by AdamW (optim/adam/adam.h) with `betas` and `adam_eps`, at the same learning
// rate. States: "momentum" of matrices; "exp_avg" and "exp_avg_sq" of the others. Dtypes and master
// weights as for Adam.
#ifndef TESSERA_OPTIM_MUON_MUON_H_
#define TESSERA_OPTIM_MUON_MUON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/options_fwd.h"
#include "optim/multi_tensor_optimizer.h"
#include "optim/tensor_step.h"

namespace tessera::optim {

struct MuonOptions {
  double lr = 1e-3;
  double momentum = 0.95;
  bool nesterov = true;
  std::vector<double> ns_coefficients = {3.4445, -4.7750, 2.0315};
  int64_t ns_steps = 5;
  double eps = 1e-7;
  std::string adjust_lr_fn = "original";
  std::vector<double> betas = {0.9, 0.999};
  double adam_eps = 1e-8;

  static const OptionTable& Table();
};

class Muon final : public MultiTensorOptimizer {
 public:
  using Options = MuonOptions;
  static std::vector<StateKind> States(const Parameter& parameter, const Options& options);
  static bool NeedsWhole(const Parameter& parameter, const Options& options);
  // Throws Error for options out of range, and as MultiTensorOptimizer does.
  explicit Muon(std::vector<ParameterGroup> groups, const MuonOptions& options = {});

 private:
  void Update(const std::vector<PendingUpdate>& updates, const StepInputs& inputs) override;
  void UpdateMatrix(const PendingUpdate& update, const TensorStep& step) const;

  MuonOptions options_;
};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_MUON_MUON_H_
