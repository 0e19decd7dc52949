// SPDX-License-Identifier: Apache-2.0
// The global norm of gradients, and clipping by it (Pascanu, Mikolov and Bengio 2013).
//
//   ClipResult clip = ClipGradNorm(parameters, {.max_norm = 1.0});
//   optimizer.Step({.clip_factor = clip.factor});    // no extra pass over the gradients
//   log(clip.norm.Item());
//
// The norm is the root of the sum of squares over all gradients, tied ones joined first. Squares
// are those of float64, and are summed without rounding (optim/exact_sum.h): neither threads nor
// the instruction set change a bit, nor do ranks that measure other parts.
#ifndef TESSERA_OPTIM_CLIP_H_
#define TESSERA_OPTIM_CLIP_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "core/tensor.h"
#include "optim/parameter.h"

namespace tessera::optim {

struct ClipOptions {
  // Larger norms are scaled down to it; > 0, infinity only measures.
  double max_norm = std::numeric_limits<double>::infinity();
  // 0-d float32 that the loss, and so every gradient, was multiplied by; norms are without it.
  Tensor loss_scale = {};
  // 0-d float32, set to 1 when the norm is not finite and left alone otherwise.
  Tensor found_inf = {};
  // Parallel runs: called with this rank's sum (SquareWords) to add up in place those of the ranks
  // that hold other parameters or other parts of them.
  std::function<void(const Tensor& words)> reduce = {};
  // Parallel runs: whether this rank adds the parameter to the norm. A parameter that several ranks
  // hold is counted by one of them. All are counted when empty.
  std::function<bool(const Parameter&)> counted = {};
};

// 0-d float32 tensors on the parameters' device.
struct ClipResult {
  Tensor norm;
  Tensor factor;  // min(1, max_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_
};

// Measures; gradients are changed by joining tied ones only. Parameters without gradient are left
// out. Throws Error for max_norm <= 0 and parameters on several devices.
ClipResult ClipGradNorm(const std::vector<Parameter>& parameters, const ClipOptions& options);

// Likewise, and multiplies the gradients by factor / loss_scale in place: they are then clipped and
// unscaled, and neither is to be given to the optimizer's step.
ClipResult ClipGradNormInPlace(const std::vector<Parameter>& parameters,
                               const ClipOptions& options);

// The steps, for runs that measure parts. int64 [kSumWords]: the sum of squares, without rounding;
// sums of parts are added as integers. Floating dtypes, on `device`.
Tensor SquareWords(const std::vector<Tensor>& tensors, Device device = Device::Cpu());
// 0-d float64: the sum, rounded.
Tensor RoundedSum(const Tensor& words);
// Norm and factor of a 0-d float64 squared norm; of the options, `reduce` and `counted` are unused.
ClipResult ClipFromSquaredNorm(const Tensor& squared_norm, const ClipOptions& options);

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_CLIP_H_
