// SPDX-License-Identifier: Apache-2.0
// Elementwise functions on rows of elements, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_ROWS_H_
#define TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_ROWS_H_

#include <cstdint>

#include "core/cpu/row_type.h"

namespace tessera {

enum class UnaryOp : uint8_t {
  kAffine,  // x * scale + shift
  kClamp,   // x held between scale and shift
  kOver,    // scale / x
  kPow,     // x^scale
  kExp,
  kExpm1,
  kLog,
  kLog1p,
  kSin,
  kCos,
  kSqrt,
  kRsqrt,
  kSquare,
  kAbs,
  kTanh,
  kSigmoid,
  kSoftplus,
  kRelu,
  kSilu,
  kGelu,
  kGeluTanh,
};

// Gradients of the functions above are functions of (gradient, x) or (gradient, y).
enum class BinaryOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMaximum,
  kMinimum,
  kPower,
  kLogGrad,       // g / x
  kSqrtGrad,      // g / (2 y)
  kRsqrtGrad,     // -g y^3 / 2
  kSquareGrad,    // 2 g x
  kAbsGrad,       // g sign(x)
  kTanhGrad,      // g (1 - y^2)
  kSigmoidGrad,   // g y (1 - y)
  kSoftplusGrad,  // g sigmoid(x)
  kReluGrad,      // g where x > 0
  kSiluGrad,      // g s (1 + x (1 - s)), s = sigmoid(x)
  kGeluGrad,      // g (Phi(x) + x phi(x))
  kGeluTanhGrad,
};

// The functions of one instruction set.
struct ElementwiseRows {
  void (*unary)(UnaryOp op, RowType type, const void* x, void* out, int64_t n, float scale,
                float shift);
  // An operand whose flag is set has one element, which repeats.
  void (*binary)(BinaryOp op, RowType type, const void* a, bool a_repeats, const void* b,
                 bool b_repeats, void* out, int64_t n);
};

namespace baseline {
extern const ElementwiseRows kElementwiseRows;
}
namespace avx2 {
extern const ElementwiseRows kElementwiseRows;
}
namespace avx512 {
extern const ElementwiseRows kElementwiseRows;
}

}  // namespace tessera

#endif  // TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_ROWS_H_
