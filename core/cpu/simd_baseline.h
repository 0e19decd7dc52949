// SPDX-License-Identifier: Apache-2.0
// core/cpu/simd.h for any x86-64 (SSE2): 4 floats, no fused multiply-add. Included by simd.h only.
#ifndef TESSERA_CORE_CPU_SIMD_BASELINE_H_
#define TESSERA_CORE_CPU_SIMD_BASELINE_H_

#include <emmintrin.h>

#include <cstdint>

namespace tessera::TESSERA_ISA {

static constexpr int64_t kLanes = 4;
static constexpr int64_t kLanesD = 2;

typedef float RawF __attribute__((vector_size(16)));
typedef double RawD __attribute__((vector_size(16)));
typedef int32_t RawI __attribute__((vector_size(16)));
typedef uint32_t RawU __attribute__((vector_size(16)));

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
  __m128 m;
};

TESSERA_SIMD VecI FromI(__m128i v) { return {reinterpret_cast<RawI>(v)}; }
TESSERA_SIMD __m128i RawOf(VecI a) { return reinterpret_cast<__m128i>(a.v); }

TESSERA_SIMD VecF Set(float x) { return {_mm_set1_ps(x)}; }
TESSERA_SIMD VecD SetD(double x) { return {_mm_set1_pd(x)}; }
TESSERA_SIMD VecI SetI(int32_t x) { return FromI(_mm_set1_epi32(x)); }
TESSERA_SIMD VecF Zero() { return {_mm_setzero_ps()}; }
TESSERA_SIMD VecD ZeroD() { return {_mm_setzero_pd()}; }
TESSERA_SIMD VecI Iota() { return FromI(_mm_setr_epi32(0, 1, 2, 3)); }

TESSERA_SIMD int32_t ClampLanes(int64_t n, int64_t lanes) {
  return static_cast<int32_t>(n < 0 ? 0 : (n > lanes ? lanes : n));
}
TESSERA_SIMD Mask FirstN(int64_t n) {
  return {_mm_castsi128_ps(_mm_cmpgt_epi32(_mm_set1_epi32(ClampLanes(n, kLanes)), RawOf(Iota())))};
}
TESSERA_SIMD Mask And(Mask a, Mask b) { return {_mm_and_ps(a.m, b.m)}; }
TESSERA_SIMD Mask Or(Mask a, Mask b) { return {_mm_or_ps(a.m, b.m)}; }
TESSERA_SIMD Mask Not(Mask a) { return {_mm_xor_ps(a.m, _mm_castsi128_ps(_mm_set1_epi32(-1)))}; }
TESSERA_SIMD uint32_t BitsOf(Mask a) { return static_cast<uint32_t>(_mm_movemask_ps(a.m)); }
TESSERA_SIMD bool AnyTrue(Mask a) { return BitsOf(a) != 0; }
TESSERA_SIMD bool AllTrue(Mask a) { return BitsOf(a) == 0xf; }

TESSERA_SIMD VecF Load(const float* p) { return {_mm_loadu_ps(p)}; }
TESSERA_SIMD VecD Load(const double* p) { return {_mm_loadu_pd(p)}; }
TESSERA_SIMD VecI Load(const int32_t* p) {
  return FromI(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
TESSERA_SIMD VecF LoadN(const float* p, int64_t n) {
  RawF r = {0, 0, 0, 0};
  for (int32_t i = 0; i < ClampLanes(n, kLanes); ++i) r[i] = p[i];
  return {r};
}
TESSERA_SIMD VecD LoadN(const double* p, int64_t n) {
  RawD r = {0, 0};
  for (int32_t i = 0; i < ClampLanes(n, kLanesD); ++i) r[i] = p[i];
  return {r};
}
TESSERA_SIMD VecI LoadN(const int32_t* p, int64_t n) {
  RawI r = {0, 0, 0, 0};
  for (int32_t i = 0; i < ClampLanes(n, kLanes); ++i) r[i] = p[i];
  return {r};
}
TESSERA_SIMD void Store(float* p, VecF v) { _mm_storeu_ps(p, v.v); }
TESSERA_SIMD void Store(double* p, VecD v) { _mm_storeu_pd(p, v.v); }
TESSERA_SIMD void Store(int32_t* p, VecI v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), RawOf(v));
}
TESSERA_SIMD void StoreN(float* p, VecF v, int64_t n) {
  for (int32_t i = 0; i < ClampLanes(n, kLanes); ++i) p[i] = v.v[i];
}
TESSERA_SIMD void StoreN(double* p, VecD v, int64_t n) {
  for (int32_t i = 0; i < ClampLanes(n, kLanesD); ++i) p[i] = v.v[i];
}
TESSERA_SIMD void StoreN(int32_t* p, VecI v, int64_t n) {
  for (int32_t i = 0; i < ClampLanes(n, kLanes); ++i) p[i] = v.v[i];
}

TESSERA_SIMD Mask operator<(VecF a, VecF b) { return {_mm_cmplt_ps(a.v, b.v)}; }
TESSERA_SIMD Mask operator<=(VecF a, VecF b) { return {_mm_cmple_ps(a.v, b.v)}; }
TESSERA_SIMD Mask operator==(VecF a, VecF b) { return {_mm_cmpeq_ps(a.v, b.v)}; }
TESSERA_SIMD Mask IsNan(VecF a) { return {_mm_cmpunord_ps(a.v, a.v)}; }
TESSERA_SIMD Mask operator==(VecI a, VecI b) {
  return {_mm_castsi128_ps(_mm_cmpeq_epi32(RawOf(a), RawOf(b)))};
}
TESSERA_SIMD Mask operator>(VecI a, VecI b) {
  return {_mm_castsi128_ps(_mm_cmpgt_epi32(RawOf(a), RawOf(b)))};
}
TESSERA_SIMD Mask MaskOf(VecI a) { return Not(a == SetI(0)); }
TESSERA_SIMD VecF Select(Mask m, VecF a, VecF b) {
  return {_mm_or_ps(_mm_and_ps(m.m, a.v), _mm_andnot_ps(m.m, b.v))};
}
TESSERA_SIMD VecI Select(Mask m, VecI a, VecI b) {
  const __m128i bits = _mm_castps_si128(m.m);
  return FromI(_mm_or_si128(_mm_and_si128(bits, RawOf(a)), _mm_andnot_si128(bits, RawOf(b))));
}

// float32 bits of bfloat16 bits, and back with rounding to nearest even.
TESSERA_SIMD uint32_t Bf16ToFloatBits(uint16_t h) { return static_cast<uint32_t>(h) << 16; }
TESSERA_SIMD uint16_t FloatBitsToBf16(uint32_t x) {
  const uint32_t rounded = x + 0x7fffu + ((x >> 16) & 1u);
  const bool nan = (x & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>((nan ? (x | 0x400000u) : rounded) >> 16);
}

// float32 bits of IEEE half bits.
TESSERA_SIMD uint32_t F16ToFloatBits(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu;
  uint32_t mantissa = h & 0x3ffu;
  if (exponent == 0x1fu) {
    return sign | 0x7f800000u | (mantissa << 13) | (mantissa != 0 ? 0x400000u : 0u);
  }
  if (exponent != 0) return sign | ((exponent + 112u) << 23) | (mantissa << 13);
  if (mantissa == 0) return sign;
  uint32_t e = 113;  // a subnormal half is a normal float32
  while ((mantissa & 0x400u) == 0) {
    mantissa <<= 1;
    --e;
  }
  return sign | (e << 23) | ((mantissa & 0x3ffu) << 13);
}

// IEEE half bits of float32 bits, rounded to nearest even; NaN stays NaN (quiet).
TESSERA_SIMD uint16_t FloatBitsToF16(uint32_t x) {
  const uint32_t sign = (x >> 16) & 0x8000u;
  const uint32_t magnitude = x & 0x7fffffffu;
  uint32_t h;
  if (magnitude > 0x7f800000u) {
    h = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520 and above round to infinity
    h = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14: a normal half
    const uint32_t rebiased = magnitude - 0x38000000u;
    h = (rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13;
  } else if (magnitude < 0x33000000u) {  // below 2^-25: zero
    h = 0;
  } else {
    const uint32_t shift = 126u - (magnitude >> 23);  // 14 .. 24
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t half = 1u << (shift - 1);
    h = (mantissa + (half - 1u) + ((mantissa >> shift) & 1u)) >> shift;
  }
  return static_cast<uint16_t>(sign | h);
}

TESSERA_SIMD VecF LoadN(const Bf16* p, int64_t n) {
  RawU r = {0, 0, 0, 0};
  for (int32_t i = 0; i < ClampLanes(n, kLanes); ++i) r[i] = Bf16ToFloatBits(p[i].bits);
  return {reinterpret_cast<RawF>(r)};
}
TESSERA_SIMD VecF Load(const Bf16* p) {
  const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return {_mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), bits))};
}
TESSERA_SIMD void StoreN(Bf16* p, VecF v, int64_t n) {
  const RawU bits = reinterpret_cast<RawU>(v.v);
  for (int32_t i = 0; i < ClampLanes(n, kLanes); ++i) p[i].bits = FloatBitsToBf16(bits[i]);
}
TESSERA_SIMD void Store(Bf16* p, VecF v) { StoreN(p, v, kLanes); }
TESSERA_SIMD VecF LoadN(const F16* p, int64_t n) {
  RawU r = {0, 0, 0, 0};
  for (int32_t i = 0; i < ClampLanes(n, kLanes); ++i) r[i] = F16ToFloatBits(p[i].bits);
  return {reinterpret_cast<RawF>(r)};
}
TESSERA_SIMD VecF Load(const F16* p) { return LoadN(p, kLanes); }
TESSERA_SIMD void StoreN(F16* p, VecF v, int64_t n) {
  const RawU bits = reinterpret_cast<RawU>(v.v);
  for (int32_t i = 0; i < ClampLanes(n, kLanes); ++i) p[i].bits = FloatBitsToF16(bits[i]);
}
TESSERA_SIMD void Store(F16* p, VecF v) { StoreN(p, v, kLanes); }

TESSERA_SIMD VecF Fma(VecF a, VecF b, VecF c) { return {a.v * b.v + c.v}; }
TESSERA_SIMD VecF NegFma(VecF a, VecF b, VecF c) { return {c.v - a.v * b.v}; }
TESSERA_SIMD VecD Fma(VecD a, VecD b, VecD c) { return {a.v * b.v + c.v}; }
TESSERA_SIMD VecF Min(VecF a, VecF b) { return {_mm_min_ps(a.v, b.v)}; }
TESSERA_SIMD VecF Max(VecF a, VecF b) { return {_mm_max_ps(a.v, b.v)}; }
TESSERA_SIMD VecF Sqrt(VecF a) { return {_mm_sqrt_ps(a.v)}; }

TESSERA_SIMD VecI ToInt(VecF a) { return FromI(_mm_cvtps_epi32(a.v)); }
TESSERA_SIMD VecF ToFloat(VecI a) { return {_mm_cvtepi32_ps(RawOf(a))}; }

// Folds 4 lanes to 1 with `op`, an __m128 operation, in the order that simd.h states.
#define TESSERA_SIMD_REDUCE_(a, op)                              \
  const __m128 r2 = _mm_##op##_ps(a.v, _mm_movehl_ps(a.v, a.v)); \
  return _mm_cvtss_f32(_mm_##op##_ss(r2, _mm_shuffle_ps(r2, r2, 1)))

TESSERA_SIMD float ReduceAdd(VecF a) { TESSERA_SIMD_REDUCE_(a, add); }
TESSERA_SIMD float ReduceMax(VecF a) { TESSERA_SIMD_REDUCE_(a, max); }
TESSERA_SIMD float ReduceMin(VecF a) { TESSERA_SIMD_REDUCE_(a, min); }
#undef TESSERA_SIMD_REDUCE_

TESSERA_SIMD double ReduceAdd(VecD a) {
  return _mm_cvtsd_f64(_mm_add_sd(a.v, _mm_unpackhi_pd(a.v, a.v)));
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_CORE_CPU_SIMD_BASELINE_H_
