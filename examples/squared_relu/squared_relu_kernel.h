// SPDX-License-Identifier: Apache-2.0
// What the kernels are given. All tensors are contiguous, with n elements of one dtype.
#ifndef TESSERA_EXAMPLES_SQUARED_RELU_SQUARED_RELU_KERNEL_H_
#define TESSERA_EXAMPLES_SQUARED_RELU_SQUARED_RELU_KERNEL_H_

#include <cstdint>

#include <tessera/core/dtype.h>
#include <tessera/core/kernel_table.h>

namespace tessera::examples {

struct SquaredReluArgs {
  DType dtype;
  int64_t n;
  const void* x;
  const void* grad;  // of the result; nullptr: `out` is the result, else the gradient of x
  void* out;
};

inline KernelWork WorkOf(const SquaredReluArgs& args) {
  return {.bytes = (args.grad == nullptr ? 2 : 3) * BytesOfElements(args.dtype, args.n)};
}

inline KernelTable<SquaredReluArgs> squared_relu_kernel{"squared_relu"};

}  // namespace tessera::examples

#endif  // TESSERA_EXAMPLES_SQUARED_RELU_SQUARED_RELU_KERNEL_H_
