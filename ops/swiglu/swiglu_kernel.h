// SPDX-License-Identifier: Apache-2.0
// What the kernels of SwiGLU are given. All tensors are contiguous, of n elements.
#ifndef TESSERA_OPS_SWIGLU_SWIGLU_KERNEL_H_
#define TESSERA_OPS_SWIGLU_SWIGLU_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"

namespace tessera {

struct SwiGluArgs {
  DType dtype;
  int64_t n;
  const void* gate;
  const void* up;
  void* out;  // "="
};

// Of the gradients.
struct SwiGluGradArgs {
  DType dtype;
  int64_t n;
  const void* grad;  // of the output
  const void* gate;
  const void* up;
  void* d_gate;  // "="
  void* d_up;    // "="
};

inline KernelWork WorkOf(const SwiGluArgs& args) {
  return {.bytes = 3 * BytesOfElements(args.dtype, args.n)};
}
inline KernelWork WorkOf(const SwiGluGradArgs& args) {
  return {.bytes = 5 * BytesOfElements(args.dtype, args.n)};
}

inline KernelTable<SwiGluArgs> swiglu_forward{"swiglu"};
inline KernelTable<SwiGluGradArgs> swiglu_backward{"swiglu gradient"};

}  // namespace tessera

#endif  // TESSERA_OPS_SWIGLU_SWIGLU_KERNEL_H_
