// SPDX-License-Identifier: Apache-2.0
// Mathematical functions of float and double under one name. Included by .cu files only.
#ifndef TESSERA_CORE_CUDA_MATH_CUH_
#define TESSERA_CORE_CUDA_MATH_CUH_

#include "core/cuda/tensor_core.cuh"

namespace tessera::cuda {

__device__ __forceinline__ float ExpOf(float x) { return expf(x); }
__device__ __forceinline__ double ExpOf(double x) { return exp(x); }
// In two instructions: exp(x) within 2^-22 and |x| 2^-23 of itself, subnormal results as 0. Of 0 it
// is 1, of -inf 0.
__device__ __forceinline__ float FastExpOf(float x) { return Exp2(x * 1.4426950408889634f); }
__device__ __forceinline__ double FastExpOf(double x) { return exp(x); }
__device__ __forceinline__ float LogOf(float x) { return logf(x); }
__device__ __forceinline__ double LogOf(double x) { return log(x); }
__device__ __forceinline__ float Log1pOf(float x) { return log1pf(x); }
__device__ __forceinline__ double Log1pOf(double x) { return log1p(x); }
__device__ __forceinline__ float RootOf(float x) { return sqrtf(x); }
__device__ __forceinline__ double RootOf(double x) { return sqrt(x); }
__device__ __forceinline__ float AbsOf(float x) { return fabsf(x); }
__device__ __forceinline__ double AbsOf(double x) { return fabs(x); }
// Of two; a NaN is not.
__device__ __forceinline__ float LargerOf(float x, float y) { return fmaxf(x, y); }
__device__ __forceinline__ double LargerOf(double x, double y) { return fmax(x, y); }
__device__ __forceinline__ float TanhOf(float x) { return tanhf(x); }
__device__ __forceinline__ double TanhOf(double x) { return tanh(x); }
// The distribution function of the standard normal distribution.
__device__ __forceinline__ float NormalCdf(float x) { return normcdff(x); }
__device__ __forceinline__ double NormalCdf(double x) { return normcdf(x); }

// The same as a policy, of formulas that the CPU has too (ops/loss/loss_scalar.h).
struct DeviceMath {
  template <typename W>
  static __device__ __forceinline__ W Exp(W x) {
    return ExpOf(x);
  }
  template <typename W>
  static __device__ __forceinline__ W Log(W x) {
    return LogOf(x);
  }
  template <typename W>
  static __device__ __forceinline__ W Log1p(W x) {
    return Log1pOf(x);
  }
  template <typename W>
  static __device__ __forceinline__ W Abs(W x) {
    return AbsOf(x);
  }
  template <typename W>
  static __device__ __forceinline__ W Tanh(W x) {
    return TanhOf(x);
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_MATH_CUH_
