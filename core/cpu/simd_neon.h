// SPDX-License-Identifier: Apache-2.0
// core/cpu/simd.h for any ARM64 (NEON, which has FMA): 4 floats. Included by simd.h only.
#ifndef TESSERA_CORE_CPU_SIMD_NEON_H_
#define TESSERA_CORE_CPU_SIMD_NEON_H_

#include <arm_neon.h>

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
  uint32x4_t m;
};

// As the types of <arm_neon.h>.
TESSERA_SIMD float32x4_t RawOf(VecF a) { return reinterpret_cast<float32x4_t>(a.v); }
TESSERA_SIMD float64x2_t RawOf(VecD a) { return reinterpret_cast<float64x2_t>(a.v); }
TESSERA_SIMD int32x4_t RawOf(VecI a) { return reinterpret_cast<int32x4_t>(a.v); }
TESSERA_SIMD VecF FromF(float32x4_t v) { return {reinterpret_cast<RawF>(v)}; }
TESSERA_SIMD VecD FromD(float64x2_t v) { return {reinterpret_cast<RawD>(v)}; }
TESSERA_SIMD VecI FromI(int32x4_t v) { return {reinterpret_cast<RawI>(v)}; }

TESSERA_SIMD VecF Set(float x) { return FromF(vdupq_n_f32(x)); }
TESSERA_SIMD VecD SetD(double x) { return FromD(vdupq_n_f64(x)); }
TESSERA_SIMD VecI SetI(int32_t x) { return FromI(vdupq_n_s32(x)); }
TESSERA_SIMD VecF Zero() { return Set(0.0f); }
TESSERA_SIMD VecD ZeroD() { return SetD(0.0); }
TESSERA_SIMD VecI Iota() { return {RawI{0, 1, 2, 3}}; }

TESSERA_SIMD int32_t ClampLanes(int64_t n, int64_t lanes) {
  return static_cast<int32_t>(n < 0 ? 0 : (n > lanes ? lanes : n));
}
TESSERA_SIMD Mask FirstN(int64_t n) {
  return {vcgtq_s32(vdupq_n_s32(ClampLanes(n, kLanes)), RawOf(Iota()))};
}
TESSERA_SIMD Mask And(Mask a, Mask b) { return {vandq_u32(a.m, b.m)}; }
TESSERA_SIMD Mask Or(Mask a, Mask b) { return {vorrq_u32(a.m, b.m)}; }
TESSERA_SIMD Mask Not(Mask a) { return {vmvnq_u32(a.m)}; }
TESSERA_SIMD uint32_t BitsOf(Mask a) {
  const RawU bit_of_lane = {1, 2, 4, 8};
  return vaddvq_u32(vandq_u32(a.m, reinterpret_cast<uint32x4_t>(bit_of_lane)));
}
TESSERA_SIMD bool AnyTrue(Mask a) { return vmaxvq_u32(a.m) != 0; }
TESSERA_SIMD bool AllTrue(Mask a) { return vminvq_u32(a.m) != 0; }

TESSERA_SIMD VecF Load(const float* p) { return FromF(vld1q_f32(p)); }
TESSERA_SIMD VecD Load(const double* p) { return FromD(vld1q_f64(p)); }
TESSERA_SIMD VecI Load(const int32_t* p) { return FromI(vld1q_s32(p)); }
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
TESSERA_SIMD void Store(float* p, VecF v) { vst1q_f32(p, RawOf(v)); }
TESSERA_SIMD void Store(double* p, VecD v) { vst1q_f64(p, RawOf(v)); }
TESSERA_SIMD void Store(int32_t* p, VecI v) { vst1q_s32(p, RawOf(v)); }
TESSERA_SIMD void StoreN(float* p, VecF v, int64_t n) {
  for (int32_t i = 0; i < ClampLanes(n, kLanes); ++i) p[i] = v.v[i];
}
TESSERA_SIMD void StoreN(double* p, VecD v, int64_t n) {
  for (int32_t i = 0; i < ClampLanes(n, kLanesD); ++i) p[i] = v.v[i];
}
TESSERA_SIMD void StoreN(int32_t* p, VecI v, int64_t n) {
  for (int32_t i = 0; i < ClampLanes(n, kLanes); ++i) p[i] = v.v[i];
}

TESSERA_SIMD Mask operator<(VecF a, VecF b) { return {vcltq_f32(RawOf(a), RawOf(b))}; }
TESSERA_SIMD Mask operator<=(VecF a, VecF b) { return {vcleq_f32(RawOf(a), RawOf(b))}; }
TESSERA_SIMD Mask operator==(VecF a, VecF b) { return {vceqq_f32(RawOf(a), RawOf(b))}; }
TESSERA_SIMD Mask IsNan(VecF a) { return Not(a == a); }
TESSERA_SIMD Mask operator==(VecI a, VecI b) { return {vceqq_s32(RawOf(a), RawOf(b))}; }
TESSERA_SIMD Mask operator>(VecI a, VecI b) { return {vcgtq_s32(RawOf(a), RawOf(b))}; }
TESSERA_SIMD Mask MaskOf(VecI a) { return {vtstq_s32(RawOf(a), RawOf(a))}; }
TESSERA_SIMD VecF Select(Mask m, VecF a, VecF b) {
  return FromF(vbslq_f32(m.m, RawOf(a), RawOf(b)));
}
TESSERA_SIMD VecI Select(Mask m, VecI a, VecI b) {
  return FromI(vbslq_s32(m.m, RawOf(a), RawOf(b)));
}

// The first n of 4 16-bit elements; the others zero.
TESSERA_SIMD uint16x4_t LoadBitsN(const void* p, int64_t n) {
  uint16_t buffer[4] = {0, 0, 0, 0};
  const uint16_t* from = static_cast<const uint16_t*>(p);
  for (int32_t i = 0; i < ClampLanes(n, kLanes); ++i) buffer[i] = from[i];
  return vld1_u16(buffer);
}
TESSERA_SIMD void StoreBitsN(void* p, uint16x4_t bits, int64_t n) {
  uint16_t buffer[4];
  vst1_u16(buffer, bits);
  uint16_t* to = static_cast<uint16_t*>(p);
  for (int32_t i = 0; i < ClampLanes(n, kLanes); ++i) to[i] = buffer[i];
}
TESSERA_SIMD VecF FromBf16Bits(uint16x4_t bits) {
  return FromF(vreinterpretq_f32_u32(vshll_n_u16(bits, 16)));
}
TESSERA_SIMD uint16x4_t ToBf16Bits(VecF v) {
  const uint32x4_t x = vreinterpretq_u32_f32(RawOf(v));
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(x, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(vaddq_u32(x, vdupq_n_u32(0x7fff)), odd);
  const uint32x4_t quiet = vorrq_u32(x, vdupq_n_u32(0x400000));
  return vshrn_n_u32(vbslq_u32(IsNan(v).m, quiet, rounded), 16);
}
TESSERA_SIMD VecF FromF16Bits(uint16x4_t bits) {
  return FromF(vcvt_f32_f16(vreinterpret_f16_u16(bits)));
}
TESSERA_SIMD uint16x4_t ToF16Bits(VecF v) { return vreinterpret_u16_f16(vcvt_f16_f32(RawOf(v))); }
TESSERA_SIMD VecF Load(const Bf16* p) {
  return FromBf16Bits(vld1_u16(reinterpret_cast<const uint16_t*>(p)));
}
TESSERA_SIMD VecF LoadN(const Bf16* p, int64_t n) { return FromBf16Bits(LoadBitsN(p, n)); }
TESSERA_SIMD void Store(Bf16* p, VecF v) {
  vst1_u16(reinterpret_cast<uint16_t*>(p), ToBf16Bits(v));
}
TESSERA_SIMD void StoreN(Bf16* p, VecF v, int64_t n) { StoreBitsN(p, ToBf16Bits(v), n); }
TESSERA_SIMD VecF Load(const F16* p) {
  return FromF16Bits(vld1_u16(reinterpret_cast<const uint16_t*>(p)));
}
TESSERA_SIMD VecF LoadN(const F16* p, int64_t n) { return FromF16Bits(LoadBitsN(p, n)); }
TESSERA_SIMD void Store(F16* p, VecF v) { vst1_u16(reinterpret_cast<uint16_t*>(p), ToF16Bits(v)); }
TESSERA_SIMD void StoreN(F16* p, VecF v, int64_t n) { StoreBitsN(p, ToF16Bits(v), n); }

TESSERA_SIMD VecF Fma(VecF a, VecF b, VecF c) {
  return FromF(vfmaq_f32(RawOf(c), RawOf(a), RawOf(b)));
}
TESSERA_SIMD VecF NegFma(VecF a, VecF b, VecF c) {
  return FromF(vfmsq_f32(RawOf(c), RawOf(a), RawOf(b)));
}
TESSERA_SIMD VecD Fma(VecD a, VecD b, VecD c) {
  return FromD(vfmaq_f64(RawOf(c), RawOf(a), RawOf(b)));
}
// The instructions of these names give NaN where either operand is one.
TESSERA_SIMD VecF Min(VecF a, VecF b) { return Select(a < b, a, b); }
TESSERA_SIMD VecF Max(VecF a, VecF b) { return Select(b < a, a, b); }
TESSERA_SIMD VecF Sqrt(VecF a) { return FromF(vsqrtq_f32(RawOf(a))); }

TESSERA_SIMD VecI ToInt(VecF a) { return FromI(vcvtnq_s32_f32(RawOf(a))); }
TESSERA_SIMD VecF ToFloat(VecI a) { return FromF(vcvtq_f32_s32(RawOf(a))); }

// Lane i becomes lane i + 2, and lane i + 1.
TESSERA_SIMD VecF UpperHalf(VecF a) { return FromF(vextq_f32(RawOf(a), RawOf(a), 2)); }
TESSERA_SIMD VecF NextLane(VecF a) { return FromF(vextq_f32(RawOf(a), RawOf(a), 1)); }

// NEON has instructions for sums across lanes, but of neighbours, which is another order.
TESSERA_SIMD float ReduceAdd(VecF a) {
  const VecF r2 = {a.v + UpperHalf(a).v};
  return r2.v[0] + r2.v[1];
}
TESSERA_SIMD float ReduceMax(VecF a) {
  const VecF r2 = Max(a, UpperHalf(a));
  return Max(r2, NextLane(r2)).v[0];
}
TESSERA_SIMD float ReduceMin(VecF a) {
  const VecF r2 = Min(a, UpperHalf(a));
  return Min(r2, NextLane(r2)).v[0];
}
TESSERA_SIMD double ReduceAdd(VecD a) { return a.v[0] + a.v[1]; }

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_CORE_CPU_SIMD_NEON_H_
