// SPDX-License-Identifier: Apache-2.0
// Arithmetic of float and double under the names that core/cpu/simd.h has for vectors of float32,
// on the host and in CUDA kernels. A formula that is a template over its values is written once:
//
//   template <typename V>
//   TESSERA_FORMULA V Decayed(V rate, V average, V x) {
//     using formula::Fma;  // a vector's own is found by its type
//     return Fma(rate, average, x);
//   }
//
// Scalar functions are C's. Fma(a, b, c) = a*b + c and NegFma(a, b, c) = c - a*b round once
// in float, as those of vectors do. In double they are written as two operations, which a GPU's
// compiler fuses and the CPU's does not. A formula whose sums are all written so leaves a compiler
// nothing else to fuse. Everything here is inlined, so that no copy compiled for a newer processor
// is merged with others.
#ifndef TESSERA_CORE_FORMULA_H_
#define TESSERA_CORE_FORMULA_H_

#include <math.h>  // the functions of C: those of <cmath> would be copies of their own

#include <type_traits>

#if defined(__CUDACC__)
#define TESSERA_FORMULA __device__ __forceinline__
#else
#define TESSERA_FORMULA inline __attribute__((always_inline))
#endif

namespace tessera::formula {

// A constant of a formula: a double rounded to the type of its values, in every lane of a vector.
template <typename V>
TESSERA_FORMULA V Constant(double x) {
  if constexpr (std::is_arithmetic_v<V>) {
    return static_cast<V>(x);
  } else {
    return InEveryLane(static_cast<float>(x), static_cast<const V*>(nullptr));
  }
}

TESSERA_FORMULA float Fma(float a, float b, float c) { return fmaf(a, b, c); }
TESSERA_FORMULA double Fma(double a, double b, double c) { return a * b + c; }
TESSERA_FORMULA float NegFma(float a, float b, float c) { return fmaf(-a, b, c); }
TESSERA_FORMULA double NegFma(double a, double b, double c) { return c - a * b; }
TESSERA_FORMULA float Sqrt(float x) { return sqrtf(x); }
TESSERA_FORMULA double Sqrt(double x) { return sqrt(x); }
TESSERA_FORMULA float Abs(float x) { return fabsf(x); }
TESSERA_FORMULA double Abs(double x) { return fabs(x); }
TESSERA_FORMULA float Exp(float x) { return expf(x); }
TESSERA_FORMULA double Exp(double x) { return exp(x); }
TESSERA_FORMULA float Expm1(float x) { return expm1f(x); }
TESSERA_FORMULA double Expm1(double x) { return expm1(x); }
TESSERA_FORMULA float Log(float x) { return logf(x); }
TESSERA_FORMULA double Log(double x) { return log(x); }
TESSERA_FORMULA float Log1p(float x) { return log1pf(x); }
TESSERA_FORMULA double Log1p(double x) { return log1p(x); }
TESSERA_FORMULA float Sin(float x) { return sinf(x); }
TESSERA_FORMULA double Sin(double x) { return sin(x); }
TESSERA_FORMULA float Cos(float x) { return cosf(x); }
TESSERA_FORMULA double Cos(double x) { return cos(x); }
TESSERA_FORMULA float Tanh(float x) { return tanhf(x); }
TESSERA_FORMULA double Tanh(double x) { return tanh(x); }
TESSERA_FORMULA float Pow(float x, float y) { return powf(x, y); }
TESSERA_FORMULA double Pow(double x, double y) { return pow(x, y); }
// The distribution function of the standard normal distribution.
#if defined(__CUDACC__)
TESSERA_FORMULA float NormalCdf(float x) { return normcdff(x); }
TESSERA_FORMULA double NormalCdf(double x) { return normcdf(x); }
#else
TESSERA_FORMULA float NormalCdf(float x) { return 0.5f * erfcf(x * -0.70710678f); }
TESSERA_FORMULA double NormalCdf(double x) { return 0.5 * erfc(x * -0.70710678118654752440); }
#endif
template <typename T>
TESSERA_FORMULA T Sigmoid(T x) {
  return T(1) / (T(1) + Exp(-x));
}
// b where either is NaN.
template <typename T>
TESSERA_FORMULA T Min(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
TESSERA_FORMULA T Max(T a, T b) {
  return a > b ? a : b;
}
template <typename T>
TESSERA_FORMULA T Select(bool condition, T a, T b) {
  return condition ? a : b;
}

}  // namespace tessera::formula

#endif  // TESSERA_CORE_FORMULA_H_
