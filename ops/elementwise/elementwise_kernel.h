// SPDX-License-Identifier: Apache-2.0
// What an elementwise kernel is given. Outputs are contiguous and written with "=".
#ifndef TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_KERNEL_H_
#define TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_KERNEL_H_

#include <cstdint>

#include "core/kernel_table.h"
#include "core/tensor.h"
#include "ops/elementwise/elementwise_rows.h"

namespace tessera {

// out = op(x); `x` has any strides.
struct UnaryArgs {
  UnaryOp op;
  DType dtype;
  Shape shape;
  const void* x;
  Shape x_strides;
  void* out;
  double scale;  // as UnaryOp says
  double shift;
};

// out = op(a, b); strides are those of the broadcast shape, 0 where an operand repeats.
struct BinaryArgs {
  BinaryOp op;
  DType dtype;  // floating, or int64 for kAdd, kSub, kMul
  Shape shape;
  const void* a;
  Shape a_strides;
  const void* b;
  Shape b_strides;
  void* out;
};

// out = condition ? a : b, for any dtype of a, b and out.
struct WhereArgs {
  DType dtype;
  Shape shape;
  const uint8_t* condition;
  Shape condition_strides;
  const void* a;
  Shape a_strides;
  const void* b;
  Shape b_strides;
  void* out;
};

// out = a (comparison) b as bool.
struct CompareArgs {
  int comparison;  // a Comparison
  DType dtype;
  Shape shape;
  const void* a;
  Shape a_strides;
  const void* b;
  Shape b_strides;
  bool* out;
};

inline KernelTable<UnaryArgs> unary_kernel{"unary"};
inline KernelTable<BinaryArgs> binary_kernel{"binary"};
inline KernelTable<WhereArgs> where_kernel{"where"};
inline KernelTable<CompareArgs> compare_kernel{"compare"};

}  // namespace tessera

#endif  // TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_KERNEL_H_
