// SPDX-License-Identifier: Apache-2.0
// core/cpu/simd.h for AVX2 with FMA and F16C: 8 floats. Included by simd.h only.
#ifndef TESSERA_CORE_CPU_SIMD_AVX2_H_
#define TESSERA_CORE_CPU_SIMD_AVX2_H_

#include <immintrin.h>

#include <cstdint>

namespace tessera::TESSERA_ISA {

static constexpr int64_t kLanes = 8;
static constexpr int64_t kLanesD = 4;

typedef float RawF __attribute__((vector_size(32)));
typedef double RawD __attribute__((vector_size(32)));
typedef int32_t RawI __attribute__((vector_size(32)));
typedef uint32_t RawU __attribute__((vector_size(32)));

struct VecF {
  RawF v;
};
struct VecD {
  RawD v;
};
struct VecI {
  RawI v;
};
// All ones or all zeros per lane.
struct Mask {
  __m256 m;
};

TESSERA_SIMD VecI FromI(__m256i v) { return {reinterpret_cast<RawI>(v)}; }
TESSERA_SIMD __m256i RawOf(VecI a) { return reinterpret_cast<__m256i>(a.v); }
TESSERA_SIMD __m256i RawOf(Mask a) { return _mm256_castps_si256(a.m); }

TESSERA_SIMD VecF Set(float x) { return {_mm256_set1_ps(x)}; }
TESSERA_SIMD VecD SetD(double x) { return {_mm256_set1_pd(x)}; }
TESSERA_SIMD VecI SetI(int32_t x) { return FromI(_mm256_set1_epi32(x)); }
TESSERA_SIMD VecF Zero() { return {_mm256_setzero_ps()}; }
TESSERA_SIMD VecD ZeroD() { return {_mm256_setzero_pd()}; }
TESSERA_SIMD VecI Iota() { return FromI(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)); }

TESSERA_SIMD int32_t ClampLanes(int64_t n) {
  return static_cast<int32_t>(n < 0 ? 0 : (n > kLanes ? kLanes : n));
}
TESSERA_SIMD Mask FirstN(int64_t n) {
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(ClampLanes(n)), RawOf(Iota())))};
}
TESSERA_SIMD __m256i FirstNDouble(int64_t n) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(ClampLanes(n)), _mm256_setr_epi64x(0, 1, 2, 3));
}
TESSERA_SIMD Mask And(Mask a, Mask b) { return {_mm256_and_ps(a.m, b.m)}; }
TESSERA_SIMD Mask Or(Mask a, Mask b) { return {_mm256_or_ps(a.m, b.m)}; }
TESSERA_SIMD Mask Not(Mask a) {
  return {_mm256_xor_ps(a.m, _mm256_castsi256_ps(_mm256_set1_epi32(-1)))};
}
TESSERA_SIMD uint32_t BitsOf(Mask a) { return static_cast<uint32_t>(_mm256_movemask_ps(a.m)); }
TESSERA_SIMD bool AnyTrue(Mask a) { return BitsOf(a) != 0; }
TESSERA_SIMD bool AllTrue(Mask a) { return BitsOf(a) == 0xff; }

TESSERA_SIMD VecF Load(const float* p) { return {_mm256_loadu_ps(p)}; }
TESSERA_SIMD VecD Load(const double* p) { return {_mm256_loadu_pd(p)}; }
TESSERA_SIMD VecI Load(const int32_t* p) {
  return FromI(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// Whole vectors are not masked: a masked store takes AMD's processors more than ten cycles.
TESSERA_SIMD VecF LoadN(const float* p, int64_t n) {
  if (n >= kLanes) return Load(p);
  return {_mm256_maskload_ps(p, RawOf(FirstN(n)))};
}
TESSERA_SIMD VecD LoadN(const double* p, int64_t n) {
  if (n >= kLanesD) return Load(p);
  return {_mm256_maskload_pd(p, FirstNDouble(n))};
}
TESSERA_SIMD VecI LoadN(const int32_t* p, int64_t n) {
  if (n >= kLanes) return Load(p);
  return FromI(_mm256_maskload_epi32(p, RawOf(FirstN(n))));
}
TESSERA_SIMD void Store(float* p, VecF v) { _mm256_storeu_ps(p, v.v); }
TESSERA_SIMD void Store(double* p, VecD v) { _mm256_storeu_pd(p, v.v); }
TESSERA_SIMD void Store(int32_t* p, VecI v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), RawOf(v));
}
TESSERA_SIMD void StoreN(float* p, VecF v, int64_t n) {
  if (n >= kLanes) return Store(p, v);
  _mm256_maskstore_ps(p, RawOf(FirstN(n)), v.v);
}
TESSERA_SIMD void StoreN(double* p, VecD v, int64_t n) {
  if (n >= kLanesD) return Store(p, v);
  _mm256_maskstore_pd(p, FirstNDouble(n), v.v);
}
TESSERA_SIMD void StoreN(int32_t* p, VecI v, int64_t n) {
  if (n >= kLanes) return Store(p, v);
  _mm256_maskstore_epi32(p, RawOf(FirstN(n)), RawOf(v));
}

// The first n of 8 16-bit elements; the others zero.
TESSERA_SIMD __m128i LoadBitsN(const void* p, int64_t n) {
  alignas(16) uint16_t buffer[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  const uint16_t* from = static_cast<const uint16_t*>(p);
  for (int32_t i = 0; i < ClampLanes(n); ++i) buffer[i] = from[i];
  return _mm_load_si128(reinterpret_cast<const __m128i*>(buffer));
}
TESSERA_SIMD void StoreBitsN(void* p, __m128i bits, int64_t n) {
  alignas(16) uint16_t buffer[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(buffer), bits);
  uint16_t* to = static_cast<uint16_t*>(p);
  for (int32_t i = 0; i < ClampLanes(n); ++i) to[i] = buffer[i];
}
TESSERA_SIMD VecF FromBf16Bits(__m128i bits) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
}
TESSERA_SIMD __m128i ToBf16Bits(VecF v) {
  const __m256i x = _mm256_castps_si256(v.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(x, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v.v, v.v, _CMP_UNORD_Q));
  const __m256i bits = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
}
TESSERA_SIMD VecF Load(const Bf16* p) {
  return FromBf16Bits(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
TESSERA_SIMD VecF LoadN(const Bf16* p, int64_t n) {
  return n >= kLanes ? Load(p) : FromBf16Bits(LoadBitsN(p, n));
}
TESSERA_SIMD void Store(Bf16* p, VecF v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), ToBf16Bits(v));
}
TESSERA_SIMD void StoreN(Bf16* p, VecF v, int64_t n) {
  if (n >= kLanes) return Store(p, v);
  StoreBitsN(p, ToBf16Bits(v), n);
}
TESSERA_SIMD VecF Load(const F16* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
TESSERA_SIMD VecF LoadN(const F16* p, int64_t n) {
  return n >= kLanes ? Load(p) : VecF{_mm256_cvtph_ps(LoadBitsN(p, n))};
}
TESSERA_SIMD void Store(F16* p, VecF v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v.v, _MM_FROUND_TO_NEAREST_INT));
}
TESSERA_SIMD void StoreN(F16* p, VecF v, int64_t n) {
  if (n >= kLanes) return Store(p, v);
  StoreBitsN(p, _mm256_cvtps_ph(v.v, _MM_FROUND_TO_NEAREST_INT), n);
}

TESSERA_SIMD VecF Fma(VecF a, VecF b, VecF c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
TESSERA_SIMD VecF NegFma(VecF a, VecF b, VecF c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
TESSERA_SIMD VecD Fma(VecD a, VecD b, VecD c) { return {_mm256_fmadd_pd(a.v, b.v, c.v)}; }
TESSERA_SIMD VecF Min(VecF a, VecF b) { return {_mm256_min_ps(a.v, b.v)}; }
TESSERA_SIMD VecF Max(VecF a, VecF b) { return {_mm256_max_ps(a.v, b.v)}; }
TESSERA_SIMD VecF Sqrt(VecF a) { return {_mm256_sqrt_ps(a.v)}; }

TESSERA_SIMD Mask operator<(VecF a, VecF b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
TESSERA_SIMD Mask operator<=(VecF a, VecF b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ)}; }
TESSERA_SIMD Mask operator==(VecF a, VecF b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
TESSERA_SIMD Mask IsNan(VecF a) { return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)}; }
TESSERA_SIMD Mask operator==(VecI a, VecI b) {
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(RawOf(a), RawOf(b)))};
}
TESSERA_SIMD Mask operator>(VecI a, VecI b) {
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(RawOf(a), RawOf(b)))};
}
TESSERA_SIMD Mask MaskOf(VecI a) { return Not(a == SetI(0)); }
TESSERA_SIMD VecF Select(Mask m, VecF a, VecF b) { return {_mm256_blendv_ps(b.v, a.v, m.m)}; }
TESSERA_SIMD VecI Select(Mask m, VecI a, VecI b) {
  return FromI(_mm256_blendv_epi8(RawOf(b), RawOf(a), RawOf(m)));
}

TESSERA_SIMD VecI ToInt(VecF a) { return FromI(_mm256_cvtps_epi32(a.v)); }
TESSERA_SIMD VecF ToFloat(VecI a) { return {_mm256_cvtepi32_ps(RawOf(a))}; }

// Folds 8 lanes to 1 with `op`, an __m128 operation, in the order that simd.h states.
#define TESSERA_SIMD_REDUCE_(a, op)                                                            \
  const __m128 r4 = _mm_##op##_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1)); \
  const __m128 r2 = _mm_##op##_ps(r4, _mm_movehl_ps(r4, r4));                                  \
  return _mm_cvtss_f32(_mm_##op##_ss(r2, _mm_movehdup_ps(r2)))

TESSERA_SIMD float ReduceAdd(VecF a) { TESSERA_SIMD_REDUCE_(a, add); }
TESSERA_SIMD float ReduceMax(VecF a) { TESSERA_SIMD_REDUCE_(a, max); }
TESSERA_SIMD float ReduceMin(VecF a) { TESSERA_SIMD_REDUCE_(a, min); }
#undef TESSERA_SIMD_REDUCE_

TESSERA_SIMD double ReduceAdd(VecD a) {
  const __m128d r2 = _mm_add_pd(_mm256_castpd256_pd128(a.v), _mm256_extractf128_pd(a.v, 1));
  return _mm_cvtsd_f64(_mm_add_sd(r2, _mm_unpackhi_pd(r2, r2)));
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_CORE_CPU_SIMD_AVX2_H_
