// SPDX-License-Identifier: Apache-2.0
// What a dropout kernel is given.
#ifndef TESSERA_OPS_DROPOUT_DROPOUT_KERNEL_H_
#define TESSERA_OPS_DROPOUT_DROPOUT_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"
#include "core/random.h"
#include "core/shape.h"

namespace tessera {

// x and out are contiguous of `shape`; out is written with "=" and may be x.
struct DropoutArgs {
  DType dtype;
  Shape shape;
  Shape global_strides;   // row-major strides of the unsharded tensor
  int64_t global_offset;  // index of x's first element there
  double p;
  RandomKey key;
  const void* x;
  void* out;
};

inline KernelWork WorkOf(const DropoutArgs& args) {
  return {.bytes = 2 * BytesOfElements(args.dtype, args.shape.numel())};
}

inline KernelTable<DropoutArgs> dropout_kernel{"dropout"};

}  // namespace tessera

#endif  // TESSERA_OPS_DROPOUT_DROPOUT_KERNEL_H_
