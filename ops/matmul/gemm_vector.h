// SPDX-License-Identifier: Apache-2.0
// What the products of gemm_isa.cc share: vectors of E, the type that is computed in, and elements
// of whatever type. For sources compiled by tessera_isa_library; see core/cpu/simd.h.
#ifndef TESSERA_OPS_MATMUL_GEMM_VECTOR_H_
#define TESSERA_OPS_MATMUL_GEMM_VECTOR_H_

#include "core/cpu/simd.h"
#include "ops/matmul/gemm_kernel.h"

// As TESSERA_SIMD, of a method.
#define TESSERA_INLINE inline __attribute__((always_inline))

namespace tessera::TESSERA_ISA {

// Rows and vectors per row of a tile: the accumulators, a row of B and one broadcast of A fill the
// registers (24 + 3 + 1 of 32, or 12 + 3 + 1 of 16; neon holds all rows' factors in 2, or 4).
#if defined(TESSERA_ISA_AVX512) || defined(TESSERA_ISA_NEON)
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 4;
#endif
constexpr int kTileVectors = 3;

template <typename E>
struct VectorOf;
template <>
struct VectorOf<float> {
  using Type = VecF;
  static constexpr int64_t kWidth = kLanes;
};
template <>
struct VectorOf<double> {
  using Type = VecD;
  static constexpr int64_t kWidth = kLanesD;
};

// One number in every lane.
TESSERA_SIMD VecF Broadcast(float x) { return Set(x); }
TESSERA_SIMD VecD Broadcast(double x) { return SetD(x); }

// An element as E.
TESSERA_SIMD float LoadOne(const float* p) { return *p; }
TESSERA_SIMD float LoadOne(const Bf16* p) { return LoadN(p, 1).v[0]; }
TESSERA_SIMD float LoadOne(const F16* p) { return LoadN(p, 1).v[0]; }
TESSERA_SIMD double LoadOne(const double* p) { return *p; }

// A step's factors of the rows of a tile: those at a[0 .. kTileRows), each in every lane.
template <typename E>
struct RowFactors {
#if defined(TESSERA_ISA_NEON)
  // A product takes any lane of a register. One register for each factor would be too many.
  typename VectorOf<E>::Type v[kTileRows / VectorOf<E>::kWidth];

  TESSERA_INLINE explicit RowFactors(const E* a) {
#pragma GCC unroll 4
    for (int j = 0; j < kTileRows / VectorOf<E>::kWidth; ++j) {
      v[j] = Load(a + j * VectorOf<E>::kWidth);
    }
  }
  TESSERA_INLINE typename VectorOf<E>::Type At(int i) const {
    return Broadcast(v[i / VectorOf<E>::kWidth].v[i % VectorOf<E>::kWidth]);
  }
#else
  const E* a;

  TESSERA_INLINE explicit RowFactors(const E* from) : a(from) {}
  TESSERA_INLINE typename VectorOf<E>::Type At(int i) const { return Broadcast(a[i]); }
#endif
};

// What is added to a sum: a product of lanes, or of the pairs of bfloat16 that lanes hold.
struct Products {
  TESSERA_SIMD VecF Add(VecF a, VecF b, VecF sum) { return Fma(a, b, sum); }
  TESSERA_SIMD VecD Add(VecD a, VecD b, VecD sum) { return Fma(a, b, sum); }
};
#if defined(TESSERA_ISA_AVX512BF16)
struct PairProducts {
  TESSERA_SIMD VecF Add(VecF a, VecF b, VecF sum) {
    return {reinterpret_cast<RawF>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum.v),
                                                    reinterpret_cast<__m512bh>(a.v),
                                                    reinterpret_cast<__m512bh>(b.v)))};
  }
};
#endif

// Where index k of a view is packed: at k ^ FlipOf.
TESSERA_SIMD int64_t FlipOf(GemmElement element) {
  return element == GemmElement::kBFloat16Pairs ? 1 : 0;
}

// Calls f(const T*) with the element type of `data`. E = double has no other element than double.
template <typename F>
TESSERA_SIMD void Dispatch(GemmElement element, const void* data, float, F f) {
  switch (element) {
    case GemmElement::kBFloat16:
    case GemmElement::kBFloat16Pairs:
      return f(static_cast<const Bf16*>(data));
    case GemmElement::kFloat16:
      return f(static_cast<const F16*>(data));
    default:
      return f(static_cast<const float*>(data));
  }
}
template <typename F>
TESSERA_SIMD void Dispatch(GemmElement, const void* data, double, F f) {
  return f(static_cast<const double*>(data));
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_MATMUL_GEMM_VECTOR_H_
