// SPDX-License-Identifier: Apache-2.0
// Elementwise functions on rows of elements, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_ROWS_H_
#define TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_ROWS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_type.h"
#include "core/formula.h"
#include "ops/elementwise/activations.h"

namespace tessera {

namespace formula {

// The exact remainder of a division whose quotient is rounded towards zero, with the sign of a; 0
// divides into NaN.
TESSERA_FORMULA float Fmod(float a, float b) { return fmodf(a, b); }
TESSERA_FORMULA double Fmod(double a, double b) { return fmod(a, b); }

}  // namespace formula

// Names and formulas of the functions of one operand `x`, with two numbers, in values of a type V.
#define TESSERA_UNARY_FORMULAS(F)      \
  F(kAffine, Fma(x, scale, shift))     \
  F(kClamp, Min(shift, Max(scale, x))) \
  F(kOver, scale / x)                  \
  F(kPow, Pow(x, scale))               \
  F(kExp, Exp(x))                      \
  F(kExpm1, Expm1(x))                  \
  F(kLog, Log(x))                      \
  F(kLog1p, Log1p(x))                  \
  F(kSin, Sin(x))                      \
  F(kCos, Cos(x))                      \
  F(kSqrt, Sqrt(x))                    \
  F(kRsqrt, Constant<V>(1) / Sqrt(x))  \
  F(kSquare, x* x)                     \
  F(kAbs, Abs(x))                      \
  F(kTanh, Tanh(x))                    \
  F(kSigmoid, Sigmoid(x))              \
  F(kSoftplus, Softplus(x))            \
  F(kRelu, Relu(x))                    \
  F(kSilu, Silu(x))                    \
  F(kNormalCdf, NormalCdf(x))          \
  F(kGelu, Gelu(x))                    \
  F(kGeluTanh, GeluTanh(x))

// Of two operands, `g` and `x`; the extrema are NaN where one of them is. The gradients of the
// functions above are functions of (gradient, x) or, of Sqrt, Rsqrt, Tanh and Sigmoid, (gradient,
// result).
#define TESSERA_BINARY_FORMULAS(F)                 \
  F(kAdd, g + x)                                   \
  F(kSub, g - x)                                   \
  F(kMul, g* x)                                    \
  F(kDiv, g / x)                                   \
  F(kMaximum, Select(g == g, Max(g, x), g))        \
  F(kMinimum, Select(g == g, Min(g, x), g))        \
  F(kPower, Pow(g, x))                             \
  F(kFmod, Fmod(g, x))                             \
  F(kLogGrad, g / x)                               \
  F(kSqrtGrad, Constant<V>(0.5) * g / x)           \
  F(kRsqrtGrad, Constant<V>(-0.5) * g * x * x * x) \
  F(kSquareGrad, Constant<V>(2) * g * x)           \
  F(kAbsGrad, g* SignOf(x))                        \
  F(kTanhGrad, g*(Constant<V>(1) - x * x))         \
  F(kSigmoidGrad, g* x*(Constant<V>(1) - x))       \
  F(kSoftplusGrad, g* Sigmoid(x))                  \
  F(kReluGrad, ReluGrad(g, x))                     \
  F(kSiluGrad, SiluGrad(g, x))                     \
  F(kGeluGrad, GeluGrad(g, x))                     \
  F(kGeluTanhGrad, GeluTanhGrad(g, x))

#define TESSERA_NAME_(Op, ...) Op,
enum class UnaryOp : uint8_t { TESSERA_UNARY_FORMULAS(TESSERA_NAME_) };
enum class BinaryOp : uint8_t { TESSERA_BINARY_FORMULAS(TESSERA_NAME_) };
#undef TESSERA_NAME_

#define TESSERA_CASE_(Op, ...) \
  case Enum::Op:               \
    return __VA_ARGS__;
// The formulas of one element; `op` is a constant or the same for all threads of a kernel.
template <typename V>
TESSERA_FORMULA V UnaryValue(UnaryOp op, V x, V scale, V shift) {
  using namespace formula;  // NOLINT(google-build-using-namespace): formulas are written with it
  using Enum = UnaryOp;
  switch (op) { TESSERA_UNARY_FORMULAS(TESSERA_CASE_) }
  return x;
}
template <typename V>
TESSERA_FORMULA V BinaryValue(BinaryOp op, V g, V x) {
  using namespace formula;  // NOLINT(google-build-using-namespace): formulas are written with it
  using Enum = BinaryOp;
  switch (op) { TESSERA_BINARY_FORMULAS(TESSERA_CASE_) }
  return x;
}
#undef TESSERA_CASE_

// The functions of one instruction set.
struct ElementwiseRows {
  void (*unary)(UnaryOp op, RowType type, const void* x, void* out, int64_t n, float scale,
                float shift);
  // An operand whose flag is set has one element, which repeats.
  void (*binary)(BinaryOp op, RowType type, const void* a, bool a_repeats, const void* b,
                 bool b_repeats, void* out, int64_t n);
};

TESSERA_DECLARE_FOR_EVERY_ISA(extern const ElementwiseRows kElementwiseRows;)

}  // namespace tessera

#endif  // TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_ROWS_H_
