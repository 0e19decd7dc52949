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
  DType dtype;  // floating, or int64 for kAdd, kSub, kMul and kDiv, a floor division
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

// Of int64: overflow wraps, and a quotient by 0 is 0.
TESSERA_FORMULA int64_t WholeBinaryValue(BinaryOp op, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a);
  const auto ub = static_cast<uint64_t>(b);
  if (op == BinaryOp::kDiv) {
    if (b == 0) return 0;
    if (b == -1) return static_cast<int64_t>(0 - ua);
    return a / b - static_cast<int64_t>(a % b != 0 && (a < 0) != (b < 0));
  }
  const uint64_t r = op == BinaryOp::kAdd ? ua + ub : op == BinaryOp::kSub ? ua - ub : ua * ub;
  return static_cast<int64_t>(r);
}

#define TESSERA_NAME_(Op, ...) #Op + 1,  // without its k
inline KernelWork WorkOf(const UnaryArgs& args) {
  static constexpr const char* kNames[] = {TESSERA_UNARY_FORMULAS(TESSERA_NAME_)};
  return {.bytes = BytesOfView(args.dtype, args.shape, args.x_strides) +
                   BytesOfElements(args.dtype, args.shape.numel()),
          .detail = kNames[static_cast<int>(args.op)]};
}
inline KernelWork WorkOf(const BinaryArgs& args) {
  static constexpr const char* kNames[] = {TESSERA_BINARY_FORMULAS(TESSERA_NAME_)};
  return {.bytes = BytesOfView(args.dtype, args.shape, args.a_strides) +
                   BytesOfView(args.dtype, args.shape, args.b_strides) +
                   BytesOfElements(args.dtype, args.shape.numel()),
          .detail = kNames[static_cast<int>(args.op)]};
}
#undef TESSERA_NAME_
inline KernelWork WorkOf(const WhereArgs& args) {
  return {.bytes = BytesOfView(DType::kBool, args.shape, args.condition_strides) +
                   BytesOfView(args.dtype, args.shape, args.a_strides) +
                   BytesOfView(args.dtype, args.shape, args.b_strides) +
                   BytesOfElements(args.dtype, args.shape.numel())};
}
inline KernelWork WorkOf(const CompareArgs& args) {
  return {.bytes = BytesOfView(args.dtype, args.shape, args.a_strides) +
                   BytesOfView(args.dtype, args.shape, args.b_strides) +
                   BytesOfElements(DType::kBool, args.shape.numel())};
}

inline KernelTable<UnaryArgs> unary_kernel{"unary"};
inline KernelTable<BinaryArgs> binary_kernel{"binary"};
inline KernelTable<WhereArgs> where_kernel{"where"};
inline KernelTable<CompareArgs> compare_kernel{"compare"};

}  // namespace tessera

#endif  // TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_KERNEL_H_
