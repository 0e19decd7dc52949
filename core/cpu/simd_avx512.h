// SPDX-License-Identifier: Apache-2.0
// core/cpu/simd.h for AVX-512 (F, BW, DQ, VL): 16 floats. Included by simd.h only.
#ifndef TESSERA_CORE_CPU_SIMD_AVX512_H_
#define TESSERA_CORE_CPU_SIMD_AVX512_H_

#include <immintrin.h>

#include <cstdint>

namespace tessera::TESSERA_ISA {

static constexpr int64_t kLanes = 16;
static constexpr int64_t kLanesD = 8;

typedef float RawF __attribute__((vector_size(64)));
typedef double RawD __attribute__((vector_size(64)));
typedef int32_t RawI __attribute__((vector_size(64)));
typedef uint32_t RawU __attribute__((vector_size(64)));

struct VecF {
  RawF v;
};
struct VecD {
  RawD v;
};
struct VecI {
  RawI v;
};
struct Mask {
  __mmask16 m;
};

TESSERA_SIMD VecI FromI(__m512i v) { return {reinterpret_cast<RawI>(v)}; }
TESSERA_SIMD __m512i RawOf(VecI a) { return reinterpret_cast<__m512i>(a.v); }

TESSERA_SIMD VecF Set(float x) { return {_mm512_set1_ps(x)}; }
TESSERA_SIMD VecD SetD(double x) { return {_mm512_set1_pd(x)}; }
TESSERA_SIMD VecI SetI(int32_t x) { return FromI(_mm512_set1_epi32(x)); }
TESSERA_SIMD VecF Zero() { return {_mm512_setzero_ps()}; }
TESSERA_SIMD VecD ZeroD() { return {_mm512_setzero_pd()}; }
TESSERA_SIMD VecI Iota() {
  return FromI(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

TESSERA_SIMD Mask FirstN(int64_t n) {
  return {static_cast<__mmask16>(n >= 16 ? 0xffffu : (1u << (n < 0 ? 0 : n)) - 1u)};
}
TESSERA_SIMD __mmask8 FirstNDouble(int64_t n) {
  return static_cast<__mmask8>(n >= 8 ? 0xffu : (1u << (n < 0 ? 0 : n)) - 1u);
}
TESSERA_SIMD Mask And(Mask a, Mask b) { return {static_cast<__mmask16>(a.m & b.m)}; }
TESSERA_SIMD Mask Or(Mask a, Mask b) { return {static_cast<__mmask16>(a.m | b.m)}; }
TESSERA_SIMD Mask Not(Mask a) { return {static_cast<__mmask16>(~a.m)}; }
TESSERA_SIMD bool AnyTrue(Mask a) { return a.m != 0; }
TESSERA_SIMD bool AllTrue(Mask a) { return a.m == 0xffff; }
TESSERA_SIMD uint32_t BitsOf(Mask a) { return a.m; }
TESSERA_SIMD Mask MaskOf(VecI a) { return {_mm512_test_epi32_mask(RawOf(a), RawOf(a))}; }

TESSERA_SIMD VecF Load(const float* p) { return {_mm512_loadu_ps(p)}; }
TESSERA_SIMD VecD Load(const double* p) { return {_mm512_loadu_pd(p)}; }
TESSERA_SIMD VecI Load(const int32_t* p) { return FromI(_mm512_loadu_si512(p)); }
TESSERA_SIMD VecF LoadN(const float* p, int64_t n) {
  return {_mm512_maskz_loadu_ps(FirstN(n).m, p)};
}
TESSERA_SIMD VecD LoadN(const double* p, int64_t n) {
  return {_mm512_maskz_loadu_pd(FirstNDouble(n), p)};
}
TESSERA_SIMD VecI LoadN(const int32_t* p, int64_t n) {
  return FromI(_mm512_maskz_loadu_epi32(FirstN(n).m, p));
}
TESSERA_SIMD void Store(float* p, VecF v) { _mm512_storeu_ps(p, v.v); }
TESSERA_SIMD void Store(double* p, VecD v) { _mm512_storeu_pd(p, v.v); }
TESSERA_SIMD void Store(int32_t* p, VecI v) { _mm512_storeu_si512(p, RawOf(v)); }
TESSERA_SIMD void StoreN(float* p, VecF v, int64_t n) {
  _mm512_mask_storeu_ps(p, FirstN(n).m, v.v);
}
TESSERA_SIMD void StoreN(double* p, VecD v, int64_t n) {
  _mm512_mask_storeu_pd(p, FirstNDouble(n), v.v);
}
TESSERA_SIMD void StoreN(int32_t* p, VecI v, int64_t n) {
  _mm512_mask_storeu_epi32(p, FirstN(n).m, RawOf(v));
}

TESSERA_SIMD VecF FromBf16Bits(__m256i bits) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
TESSERA_SIMD __m256i ToBf16Bits(VecF v) {
  const __m512i x = _mm512_castps_si512(v.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i quiet = _mm512_or_si512(x, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(v.v, v.v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
}
TESSERA_SIMD VecF Load(const Bf16* p) {
  return FromBf16Bits(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
TESSERA_SIMD VecF LoadN(const Bf16* p, int64_t n) {
  return FromBf16Bits(_mm256_maskz_loadu_epi16(FirstN(n).m, p));
}
TESSERA_SIMD void Store(Bf16* p, VecF v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), ToBf16Bits(v));
}
TESSERA_SIMD void StoreN(Bf16* p, VecF v, int64_t n) {
  _mm256_mask_storeu_epi16(p, FirstN(n).m, ToBf16Bits(v));
}
TESSERA_SIMD VecF Load(const F16* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
TESSERA_SIMD VecF LoadN(const F16* p, int64_t n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstN(n).m, p))};
}
TESSERA_SIMD void Store(F16* p, VecF v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(v.v, _MM_FROUND_TO_NEAREST_INT));
}
TESSERA_SIMD void StoreN(F16* p, VecF v, int64_t n) {
  _mm256_mask_storeu_epi16(p, FirstN(n).m, _mm512_cvtps_ph(v.v, _MM_FROUND_TO_NEAREST_INT));
}

TESSERA_SIMD VecF Fma(VecF a, VecF b, VecF c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
TESSERA_SIMD VecF NegFma(VecF a, VecF b, VecF c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
TESSERA_SIMD VecD Fma(VecD a, VecD b, VecD c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
TESSERA_SIMD VecF Min(VecF a, VecF b) { return {_mm512_min_ps(a.v, b.v)}; }
TESSERA_SIMD VecF Max(VecF a, VecF b) { return {_mm512_max_ps(a.v, b.v)}; }
TESSERA_SIMD VecF Sqrt(VecF a) { return {_mm512_sqrt_ps(a.v)}; }

TESSERA_SIMD Mask operator<(VecF a, VecF b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
TESSERA_SIMD Mask operator<=(VecF a, VecF b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
TESSERA_SIMD Mask operator==(VecF a, VecF b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
TESSERA_SIMD Mask IsNan(VecF a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
TESSERA_SIMD Mask operator==(VecI a, VecI b) {
  return {_mm512_cmpeq_epi32_mask(RawOf(a), RawOf(b))};
}
TESSERA_SIMD Mask operator>(VecI a, VecI b) {
  return {_mm512_cmpgt_epi32_mask(RawOf(a), RawOf(b))};
}
TESSERA_SIMD VecF Select(Mask m, VecF a, VecF b) { return {_mm512_mask_blend_ps(m.m, b.v, a.v)}; }
TESSERA_SIMD VecI Select(Mask m, VecI a, VecI b) {
  return FromI(_mm512_mask_blend_epi32(m.m, RawOf(b), RawOf(a)));
}

TESSERA_SIMD VecI ToInt(VecF a) { return FromI(_mm512_cvtps_epi32(a.v)); }
TESSERA_SIMD VecF ToFloat(VecI a) { return {_mm512_cvtepi32_ps(RawOf(a))}; }

// Folds 16 lanes to 1 with `op`, an __m256/__m128 operation, in the order that simd.h states.
#define TESSERA_SIMD_REDUCE_(a, op)                                                                \
  const __m256 r8 = _mm256_##op##_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1)); \
  const __m128 r4 = _mm_##op##_ps(_mm256_castps256_ps128(r8), _mm256_extractf128_ps(r8, 1));       \
  const __m128 r2 = _mm_##op##_ps(r4, _mm_movehl_ps(r4, r4));                                      \
  return _mm_cvtss_f32(_mm_##op##_ss(r2, _mm_movehdup_ps(r2)))

TESSERA_SIMD float ReduceAdd(VecF a) { TESSERA_SIMD_REDUCE_(a, add); }
TESSERA_SIMD float ReduceMax(VecF a) { TESSERA_SIMD_REDUCE_(a, max); }
TESSERA_SIMD float ReduceMin(VecF a) { TESSERA_SIMD_REDUCE_(a, min); }
#undef TESSERA_SIMD_REDUCE_

TESSERA_SIMD double ReduceAdd(VecD a) {
  const __m256d r4 = _mm256_add_pd(_mm512_castpd512_pd256(a.v), _mm512_extractf64x4_pd(a.v, 1));
  const __m128d r2 = _mm_add_pd(_mm256_castpd256_pd128(r4), _mm256_extractf128_pd(r4, 1));
  return _mm_cvtsd_f64(_mm_add_sd(r2, _mm_unpackhi_pd(r2, r2)));
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_CORE_CPU_SIMD_AVX512_H_
