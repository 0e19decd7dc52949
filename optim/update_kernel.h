// SPDX-License-Identifier: Apache-2.0
// What the kernels of elementwise updates are given: all tensors of an optimizer at once.
#ifndef TESSERA_OPTIM_UPDATE_KERNEL_H_
#define TESSERA_OPTIM_UPDATE_KERNEL_H_

#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "core/kernel_table.h"
#include "optim/update_chunks.h"

namespace tessera::optim {

// Elements that one thread updates at a time.
inline constexpr int64_t kUpdateChunk = 16384;

// One parameter; every tensor is contiguous with n elements.
struct UpdateTensor {
  int64_t n;
  DType dtype;       // of the parameter
  DType grad_dtype;  // a half or float32 parameter has no float64 gradient
  void* param;       // "="
  const void* grad;
  float* master;             // half precision only: the weights themselves; param = their rounding
  void* states[kMaxStates];  // AccumulateDType(dtype), "="; nullptr: none
  double lr_scale;           // times the learning rate
  double weight_decay;
};

// Device scalars; grad * clip_factor / loss_scale is what counts, and found_inf != 0 makes the
// kernels do nothing.
struct UpdateScalars {
  const double* learning_rate;
  int64_t* step;             // the step being taken, from 1
  const float* clip_factor;  // or nullptr: 1
  const float* loss_scale;   // or nullptr: 1
  const float* found_inf;    // or nullptr: 0
};

// An elementwise update by one rule (optim/update_chunks.h).
template <typename Rule>
struct UpdateArgs {
  const std::vector<UpdateTensor>& tensors;
  UpdateScalars scalars;
  Rule rule;
};

// Only advances *step: by one unless found_inf. Launched before the update.
struct AdvanceArgs {
  UpdateScalars scalars;
};

// Gradients are read; weights, their masters and the states are read and written.
inline KernelWork UpdateWork(const std::vector<UpdateTensor>& tensors) {
  KernelWork work;
  for (const UpdateTensor& t : tensors) {
    const int states = (t.states[0] != nullptr) + (t.states[1] != nullptr);
    work.bytes += BytesOfElements(t.grad_dtype, t.n) + 2 * BytesOfElements(t.dtype, t.n) +
                  2 * states * BytesOfElements(AccumulateDType(t.dtype), t.n) +
                  (t.master == nullptr ? 0 : 2 * BytesOfElements(DType::kFloat32, t.n));
  }
  return work;
}
template <typename Rule>
KernelWork WorkOf(const UpdateArgs<Rule>& args) {
  return UpdateWork(args.tensors);
}

inline KernelTable<AdvanceArgs> advance_step{"optimizer step count"};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_UPDATE_KERNEL_H_
