// SPDX-License-Identifier: Apache-2.0
// What the loss kernels are given: contiguous tensors of `count` elements; results are written with
// "=". Wide is AccumulateDType(dtype).
#ifndef TESSERA_OPS_LOSS_LOSS_KERNEL_H_
#define TESSERA_OPS_LOSS_LOSS_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"
#include "ops/loss/loss_rows.h"

namespace tessera {

struct LossArgs {
  PairLoss loss;
  double parameter;  // as PairLoss says
  DType dtype;       // of x and target
  int64_t count;
  const void* x;
  const void* target;
  void* out;  // Wide
};

// Of the gradients.
struct LossGradArgs {
  PairLoss loss;
  double parameter;
  DType dtype;  // of x, target and out
  int64_t count;
  bool by_target;     // the gradient of the target, else of x
  const void* grad;   // Wide; of each loss, or one number
  bool grad_repeats;  // one number
  const void* x;
  const void* target;
  void* out;
};

inline KernelWork WorkOf(const LossArgs& args) {
  return {.bytes = 2 * BytesOfElements(args.dtype, args.count) +
                   BytesOfElements(AccumulateDType(args.dtype), args.count)};
}
inline KernelWork WorkOf(const LossGradArgs& args) {
  return {.bytes = 3 * BytesOfElements(args.dtype, args.count)};
}

inline KernelTable<LossArgs> loss_kernel{"loss"};
inline KernelTable<LossGradArgs> loss_grad_kernel{"loss gradient"};

}  // namespace tessera

#endif  // TESSERA_OPS_LOSS_LOSS_KERNEL_H_
