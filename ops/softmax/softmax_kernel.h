// SPDX-License-Identifier: Apache-2.0
// What the softmax kernels are given: contiguous [rows, n], n >= 1.
#ifndef TESSERA_OPS_SOFTMAX_SOFTMAX_KERNEL_H_
#define TESSERA_OPS_SOFTMAX_SOFTMAX_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"

namespace tessera {

struct SoftmaxArgs {
  DType dtype;
  bool log;
  int64_t rows;
  int64_t n;
  const void* x;
  void* y;  // "="
};

// Of the gradient.
struct SoftmaxGradArgs {
  DType dtype;
  bool log;
  int64_t rows;
  int64_t n;
  const void* y;
  const void* dy;
  void* dx;  // "="
};

inline KernelWork WorkOf(const SoftmaxArgs& args) {
  return {.bytes = 2 * BytesOfElements(args.dtype, args.rows * args.n)};
}
inline KernelWork WorkOf(const SoftmaxGradArgs& args) {
  return {.bytes = 3 * BytesOfElements(args.dtype, args.rows * args.n)};
}

inline KernelTable<SoftmaxArgs> softmax_forward{"softmax"};
inline KernelTable<SoftmaxGradArgs> softmax_backward{"softmax gradient"};

}  // namespace tessera

#endif  // TESSERA_OPS_SOFTMAX_SOFTMAX_KERNEL_H_
