// SPDX-License-Identifier: Apache-2.0
// Pairs of bfloat16 as the products of bfloat16 by bfloat16 read them: a lane holds the numbers of
// indices k (lower half) and k + 1. All functions treat memory as bits.
//
// For sources compiled by tessera_isa_library with AVX-512; see core/cpu/simd.h.
#ifndef TESSERA_OPS_MATMUL_GEMM_PAIRS_H_
#define TESSERA_OPS_MATMUL_GEMM_PAIRS_H_

#include "core/cpu/simd.h"

namespace tessera::TESSERA_ISA {

TESSERA_SIMD __m512i Words(const Bf16* p, int64_t n) {
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(static_cast<__mmask16>(FirstN(n).m), p));
}

// The numbers of n <= kLanes columns side by side; `odd` is null where there is no such row.
TESSERA_SIMD VecF PairsAcross(const Bf16* even, const Bf16* odd, int64_t n) {
  __m512i pairs = Words(even, n);
  if (odd != nullptr) pairs = _mm512_or_si512(pairs, _mm512_slli_epi32(Words(odd, n), 16));
  return BitsAsFloat(FromI(pairs));
}

// The same of columns that are not side by side.
__attribute__((noinline)) static void StorePairs(const Bf16* even, const Bf16* odd, int64_t stride,
                                                 int64_t n, int64_t lanes, float* to) {
  for (int64_t i = 0; i < lanes; ++i) {
    const uint32_t low = i < n ? even[i * stride].bits : 0;
    const uint32_t high = i < n && odd != nullptr ? odd[i * stride].bits : 0;
    reinterpret_cast<uint32_t*>(to)[i] = high << 16 | low;
  }
}

// The pairs of one column, of n <= 2 * kLanes indices.
TESSERA_SIMD VecF PairsAlong(const Bf16* p, int64_t n) {
  if (n >= 2 * kLanes) return Load(reinterpret_cast<const float*>(p));
  const __mmask32 first = n <= 0 ? 0 : (uint32_t{1} << n) - 1;
  return BitsAsFloat(FromI(_mm512_maskz_loadu_epi16(first, p)));
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_MATMUL_GEMM_PAIRS_H_
