// SPDX-License-Identifier: Apache-2.0
// Functions of float and double that only GPUs have; core/formula.h has the others. Included by .cu
// files only.
#ifndef TESSERA_CORE_CUDA_MATH_CUH_
#define TESSERA_CORE_CUDA_MATH_CUH_

#include "core/cuda/tensor_core.cuh"

namespace tessera::cuda {

// In two instructions: exp(x) within 2^-22 and |x| 2^-23 of itself, subnormal results as 0. Of 0 it
// is 1, of -inf 0.
__device__ __forceinline__ float FastExpOf(float x) { return Exp2(x * 1.4426950408889634f); }
__device__ __forceinline__ double FastExpOf(double x) { return exp(x); }
// Of two; a NaN is not.
__device__ __forceinline__ float LargerOf(float x, float y) { return fmaxf(x, y); }
__device__ __forceinline__ double LargerOf(double x, double y) { return fmax(x, y); }

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_MATH_CUH_
