// SPDX-License-Identifier: Apache-2.0
// Elementwise arithmetic and functions, with broadcasting.
//
//   Tensor y = x_BTC * weight_C + bias_C;             // Add(Mul(x_BTC, weight_C), bias_C)
//   Tensor z = 1.0 / (1.0 + Exp(-y));
//   Tensor m = MaskedFill(scores, mask, -1e9);
//
// Half precision is computed in float32 and rounded once. Two-argument functions broadcast as NumPy
// does (dims align from the right, a size of 1 stretches) and take two dtypes: the result has the
// one that holds both (PromotedDType of ops/cast/promotion.h), so that float32 * mask is float32,
// and bfloat16 + int64 is bfloat16. Gradients flow to every floating argument, summed over what was
// broadcast. Shapes that do not broadcast throw Error.
//
// Whole numbers and masks. Add, Sub, Mul, Maximum, Minimum, Square, Abs, Clamp, Where and Pow by a
// whole number take any dtype; int32, int64 and uint8 wrap. Div gives float32 (FloorDivide of
// ops/elementwise/rounding.h: whole numbers). Of masks, Add and Maximum are "or", Mul and Minimum
// "and"; Sub is refused. A whole number keeps the tensor's dtype, but gives int64 beside a mask; a
// fraction beside either is refused. All other functions need floating dtypes.
#ifndef TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_H_
#define TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_H_

#include "core/tensor.h"

namespace tessera {

// Of two tensors, element by element; shapes broadcast.
Tensor Add(const Tensor& a, const Tensor& b);
Tensor Sub(const Tensor& a, const Tensor& b);
Tensor Mul(const Tensor& a, const Tensor& b);
Tensor Div(const Tensor& a, const Tensor& b);
// NaN where one of them is. The gradient goes to the larger one (the smaller one); to both by
// halves where they are equal, and whole where the result is NaN.
Tensor Maximum(const Tensor& a, const Tensor& b);
Tensor Minimum(const Tensor& a, const Tensor& b);

// x * scale + shift.
Tensor Affine(const Tensor& x, double scale, double shift);
inline Tensor Add(const Tensor& x, double value) { return Affine(x, 1.0, value); }
inline Tensor Sub(const Tensor& x, double value) { return Affine(x, 1.0, -value); }
inline Tensor Sub(double value, const Tensor& x) { return Affine(x, -1.0, value); }
inline Tensor Mul(const Tensor& x, double value) { return Affine(x, value, 0.0); }
inline Tensor Neg(const Tensor& x) { return Affine(x, -1.0, 0.0); }
// x times 1 / value, as PyTorch's GPUs have it; value / x.
Tensor Div(const Tensor& x, double value);
Tensor Div(double value, const Tensor& x);

// The same as operators.
inline Tensor operator+(const Tensor& a, const Tensor& b) { return Add(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return Add(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return Add(b, a); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return Sub(a, b); }
inline Tensor operator-(const Tensor& a, double b) { return Sub(a, b); }
inline Tensor operator-(double a, const Tensor& b) { return Sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return Mul(a, b); }
inline Tensor operator*(const Tensor& a, double b) { return Mul(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return Mul(b, a); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return Div(a, b); }
inline Tensor operator/(const Tensor& a, double b) { return Div(a, b); }
inline Tensor operator/(double a, const Tensor& b) { return Div(a, b); }
inline Tensor operator-(const Tensor& x) { return Neg(x); }
// x becomes another tensor, on the tape; other handles to what it was keep that.
inline Tensor& operator+=(Tensor& x, const Tensor& y) { return x = Add(x, y); }
inline Tensor& operator+=(Tensor& x, double y) { return x = Add(x, y); }
inline Tensor& operator-=(Tensor& x, const Tensor& y) { return x = Sub(x, y); }
inline Tensor& operator-=(Tensor& x, double y) { return x = Sub(x, y); }
inline Tensor& operator*=(Tensor& x, const Tensor& y) { return x = Mul(x, y); }
inline Tensor& operator*=(Tensor& x, double y) { return x = Mul(x, y); }
inline Tensor& operator/=(Tensor& x, const Tensor& y) { return x = Div(x, y); }
inline Tensor& operator/=(Tensor& x, double y) { return x = Div(x, y); }

// base^exponent as C's pow. No gradient reaches what has none: an exponent over a base of 0, a base
// under an exponent of 0.
Tensor Pow(const Tensor& base, double exponent);
Tensor Pow(const Tensor& base, const Tensor& exponent);
// The nearest value in [low, high], either of which may be infinite; NaN stays. The gradient flows
// where x is inside, the ends included.
Tensor Clamp(const Tensor& x, double low, double high);
// In radians; float32 is within 1.2e-7 of the exact value for every finite argument.
Tensor Sin(const Tensor& x);
Tensor Cos(const Tensor& x);

Tensor Exp(const Tensor& x);
// e^x - 1, accurate where x is small.
Tensor Expm1(const Tensor& x);
Tensor Log(const Tensor& x);
// log(1 + x), accurate where x is small.
Tensor Log1p(const Tensor& x);
Tensor Sqrt(const Tensor& x);
Tensor Rsqrt(const Tensor& x);
Tensor Square(const Tensor& x);
Tensor Abs(const Tensor& x);
Tensor Tanh(const Tensor& x);
Tensor Sigmoid(const Tensor& x);
// log(1 + e^x).
Tensor Softplus(const Tensor& x);
Tensor Relu(const Tensor& x);
// x * sigmoid(x).
Tensor Silu(const Tensor& x);
// Phi(x), the normal distribution function: (1 + erf(x / sqrt(2))) / 2.
Tensor NormalCdf(const Tensor& x);
// x * Phi(x), Phi the normal distribution function (Hendrycks and Gimpel 2016).
Tensor Gelu(const Tensor& x);
// The approximation 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): GPT-2's `gelu_new`.
Tensor GeluTanh(const Tensor& x);

// condition ? a : b, all broadcast; condition is bool or uint8. A number is treated as in
// arithmetic: it keeps the tensor's dtype, but gives int64 beside a mask, and a fraction beside
// whole numbers or a mask throws Error. Of two numbers the result has `dtype`.
Tensor Where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor Where(const Tensor& condition, const Tensor& a, double b);
Tensor Where(const Tensor& condition, double a, const Tensor& b);
Tensor Where(const Tensor& condition, double a, double b, DType dtype = DType::kFloat32);
// value where mask is true, else x.
inline Tensor MaskedFill(const Tensor& x, const Tensor& mask, double value) {
  return Where(mask, value, x);
}

// Comparisons give bool tensors, without gradients; any dtypes. A number that the tensor's dtype
// cannot hold (-1 beside uint8, 0.5 beside int64) is compared in a wider one.
enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };
Tensor Compare(const Tensor& a, const Tensor& b, Comparison comparison);
Tensor Compare(const Tensor& a, double b, Comparison comparison);

}  // namespace tessera

#endif  // TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_H_
