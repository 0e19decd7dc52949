// SPDX-License-Identifier: Apache-2.0
// GELU and its gradients in kernels, in float or double. Formulas: ops/elementwise/elementwise.h.
#ifndef TESSERA_OPS_ELEMENTWISE_GELU_CUH_
#define TESSERA_OPS_ELEMENTWISE_GELU_CUH_

#include "core/cuda/math.cuh"

namespace tessera::cuda {

// sqrt(2 / pi) and 1 / sqrt(2 pi).
template <typename W>
inline constexpr W kSqrt2OverPi = static_cast<W>(0.79788456080286535587989211986876);
template <typename W>
inline constexpr W kNormalPeak = static_cast<W>(0.39894228040143267793994605993438);

template <typename W>
__device__ __forceinline__ W GeluInner(W x) {
  return kSqrt2OverPi<W> * (x + W(0.044715) * x * x * x);
}
template <typename W>
__device__ __forceinline__ W Gelu(W x) {
  return x * NormalCdf(x);
}
template <typename W>
__device__ __forceinline__ W GeluTanh(W x) {
  return W(0.5) * x * (W(1) + TanhOf(GeluInner(x)));
}
// g times the derivative at x.
template <typename W>
__device__ __forceinline__ W GeluGrad(W g, W x) {
  return g * (NormalCdf(x) + x * ExpOf(W(-0.5) * x * x) * kNormalPeak<W>);
}
template <typename W>
__device__ __forceinline__ W GeluTanhGrad(W g, W x) {
  const W t = TanhOf(GeluInner(x));
  const W inner = kSqrt2OverPi<W> * (W(1) + W(3 * 0.044715) * x * x);
  return g * W(0.5) * (W(1) + t + x * (W(1) - t * t) * inner);
}

}  // namespace tessera::cuda

#endif  // TESSERA_OPS_ELEMENTWISE_GELU_CUH_
