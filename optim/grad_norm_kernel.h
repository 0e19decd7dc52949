// SPDX-License-Identifier: Apache-2.0
// What the kernels of gradient norms are given.
#ifndef TESSERA_OPTIM_GRAD_NORM_KERNEL_H_
#define TESSERA_OPTIM_GRAD_NORM_KERNEL_H_

#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "core/kernel_table.h"

namespace tessera::optim {

// A contiguous gradient.
struct GradArray {
  int64_t n;
  DType dtype;
  void* data;
};

// The sum of all squares, each in float64.
struct SquareSumArgs {
  const std::vector<GradArray>& grads;
  int64_t* words;  // [kSumWords] of optim/exact_sum.h, "="
};

// *sum = RoundedSum(words).
struct RoundSumArgs {
  const int64_t* words;
  double* sum;
};

// norm = sqrt(squared_norm) / loss_scale, factor = min(1, max_norm / (norm + 1e-6)), and
// *found_inf = 1 where the norm is not finite.
struct ClipFactorArgs {
  const double* squared_norm;
  const float* loss_scale;  // or nullptr: 1
  double max_norm;
  float* norm;
  float* factor;
  float* found_inf;  // or nullptr
};

// grads *= clip_factor / loss_scale.
struct ScaleGradsArgs {
  const std::vector<GradArray>& grads;
  const float* clip_factor;
  const float* loss_scale;  // or nullptr: 1
};

inline double BytesOfGrads(const std::vector<GradArray>& grads) {
  double bytes = 0;
  for (const GradArray& g : grads) bytes += BytesOfElements(g.dtype, g.n);
  return bytes;
}
inline KernelWork WorkOf(const SquareSumArgs& args) { return {.bytes = BytesOfGrads(args.grads)}; }
inline KernelWork WorkOf(const ScaleGradsArgs& args) {
  return {.bytes = 2 * BytesOfGrads(args.grads)};
}

inline KernelTable<SquareSumArgs> square_sums{"gradient norm"};
inline KernelTable<RoundSumArgs> round_sum{"gradient norm sum"};
inline KernelTable<ClipFactorArgs> clip_factor{"clip factor"};
inline KernelTable<ScaleGradsArgs> scale_grads{"gradient scaling"};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_GRAD_NORM_KERNEL_H_
