// Elementwise arithmetic and functions, with broadcasting.
//
//   Tensor y = Add(Mul(x_BTC, weight_C), bias_C);
//   Tensor m = MaskedFill(scores, mask, -1e9);
//
// Floating dtypes; half precision is computed in float32 and rounded once. Two-argument functions
// broadcast as NumPy does (dims align from the right, a size of 1 stretches) and compute in the
// wider of two floating dtypes; Add, Sub and Mul also take int64. Gradients flow to every floating
// argument, summed over what was broadcast. Shapes that do not broadcast throw Error.
#ifndef TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_H_
#define TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_H_

#include "core/tensor.h"

namespace tessera {

Tensor Add(const Tensor& a, const Tensor& b);
Tensor Sub(const Tensor& a, const Tensor& b);
Tensor Mul(const Tensor& a, const Tensor& b);
Tensor Div(const Tensor& a, const Tensor& b);
// The gradient goes to the larger one; to both by halves where they are equal.
Tensor Maximum(const Tensor& a, const Tensor& b);
Tensor Minimum(const Tensor& a, const Tensor& b);

// x * scale + shift.
Tensor Affine(const Tensor& x, double scale, double shift);
inline Tensor Add(const Tensor& x, double value) { return Affine(x, 1.0, value); }
inline Tensor Mul(const Tensor& x, double value) { return Affine(x, value, 0.0); }
inline Tensor Neg(const Tensor& x) { return Affine(x, -1.0, 0.0); }

Tensor Exp(const Tensor& x);
Tensor Log(const Tensor& x);
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
// x * Phi(x), Phi the normal distribution function (Hendrycks and Gimpel 2016).
Tensor Gelu(const Tensor& x);
// The approximation 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): GPT-2's `gelu_new`.
Tensor GeluTanh(const Tensor& x);

// condition ? a : b, all broadcast; condition is bool or uint8.
Tensor Where(const Tensor& condition, const Tensor& a, const Tensor& b);
// value where mask is true, else x.
Tensor MaskedFill(const Tensor& x, const Tensor& mask, double value);

// Comparisons give bool tensors, without gradients; any dtype, both the same.
enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };
Tensor Compare(const Tensor& a, const Tensor& b, Comparison comparison);
Tensor Compare(const Tensor& a, double b, Comparison comparison);

}  // namespace tessera

#endif  // TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_H_
