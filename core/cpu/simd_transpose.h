// SPDX-License-Identifier: Apache-2.0
// Transposition of a square of kLanes vectors, for packing.
//
//   VecF rows[kLanes];            // rows[i] holds row i
//   TransposeSquare(rows);        // rows[i] holds column i
//   StoreHalves(p, q, rows[0]);   // its lower lanes to p, its upper lanes to q
//
// For sources compiled by tessera_isa_library; see core/cpu/simd.h.
#ifndef TESSERA_CORE_CPU_SIMD_TRANSPOSE_H_
#define TESSERA_CORE_CPU_SIMD_TRANSPOSE_H_

#include "core/cpu/simd.h"

namespace tessera::TESSERA_ISA {

#if defined(TESSERA_ISA_AVX512)

TESSERA_SIMD void TransposeSquare(VecF (&r)[16]) {
  __m512 t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i].v, r[i + 1].v);
    t[i + 1] = _mm512_unpackhi_ps(r[i].v, r[i + 1].v);
  }
  // Each 128-bit part now becomes a 4x4 transposition of its rows.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
    const __m512d c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
    r[i].v = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    r[i + 1].v = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    r[i + 2].v = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    r[i + 3].v = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
  // The 128-bit parts are transposed as a 4x4 of parts.
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 low01 = _mm512_shuffle_f32x4(r[i].v, r[i + 4].v, 0x88);
    const __m512 low23 = _mm512_shuffle_f32x4(r[i + 8].v, r[i + 12].v, 0x88);
    const __m512 high01 = _mm512_shuffle_f32x4(r[i].v, r[i + 4].v, 0xdd);
    const __m512 high23 = _mm512_shuffle_f32x4(r[i + 8].v, r[i + 12].v, 0xdd);
    r[i].v = _mm512_shuffle_f32x4(low01, low23, 0x88);
    r[i + 4].v = _mm512_shuffle_f32x4(high01, high23, 0x88);
    r[i + 8].v = _mm512_shuffle_f32x4(low01, low23, 0xdd);
    r[i + 12].v = _mm512_shuffle_f32x4(high01, high23, 0xdd);
  }
}

TESSERA_SIMD void StoreHalves(float* low, float* high, VecF v) {
  _mm256_storeu_ps(low, _mm512_castps512_ps256(v.v));
  _mm256_storeu_ps(high, _mm512_extractf32x8_ps(v.v, 1));
}

#elif defined(TESSERA_ISA_AVX2)

TESSERA_SIMD void TransposeSquare(VecF (&r)[8]) {
  __m256 t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i].v, r[i + 1].v);
    t[i + 1] = _mm256_unpackhi_ps(r[i].v, r[i + 1].v);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    r[i].v = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1].v = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2].v = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3].v = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256 a = r[i].v, b = r[i + 4].v;
    r[i].v = _mm256_permute2f128_ps(a, b, 0x20);
    r[i + 4].v = _mm256_permute2f128_ps(a, b, 0x31);
  }
}

TESSERA_SIMD void StoreHalves(float* low, float* high, VecF v) {
  _mm_storeu_ps(low, _mm256_castps256_ps128(v.v));
  _mm_storeu_ps(high, _mm256_extractf128_ps(v.v, 1));
}

#elif defined(TESSERA_ISA_NEON)

TESSERA_SIMD void TransposeSquare(VecF (&r)[4]) {
  const auto pairs = [](float32x4_t a) __attribute__((always_inline)) {
    return vreinterpretq_f64_f32(a);
  };
  const float64x2_t t0 = pairs(vzip1q_f32(RawOf(r[0]), RawOf(r[1])));
  const float64x2_t t1 = pairs(vzip2q_f32(RawOf(r[0]), RawOf(r[1])));
  const float64x2_t t2 = pairs(vzip1q_f32(RawOf(r[2]), RawOf(r[3])));
  const float64x2_t t3 = pairs(vzip2q_f32(RawOf(r[2]), RawOf(r[3])));
  r[0] = FromF(vreinterpretq_f32_f64(vzip1q_f64(t0, t2)));
  r[1] = FromF(vreinterpretq_f32_f64(vzip2q_f64(t0, t2)));
  r[2] = FromF(vreinterpretq_f32_f64(vzip1q_f64(t1, t3)));
  r[3] = FromF(vreinterpretq_f32_f64(vzip2q_f64(t1, t3)));
}

TESSERA_SIMD void StoreHalves(float* low, float* high, VecF v) {
  vst1_f32(low, vget_low_f32(RawOf(v)));
  vst1_f32(high, vget_high_f32(RawOf(v)));
}

#else

TESSERA_SIMD void TransposeSquare(VecF (&r)[4]) {
  const __m128 t0 = _mm_unpacklo_ps(r[0].v, r[1].v);
  const __m128 t1 = _mm_unpackhi_ps(r[0].v, r[1].v);
  const __m128 t2 = _mm_unpacklo_ps(r[2].v, r[3].v);
  const __m128 t3 = _mm_unpackhi_ps(r[2].v, r[3].v);
  r[0].v = _mm_movelh_ps(t0, t2);
  r[1].v = _mm_movehl_ps(t2, t0);
  r[2].v = _mm_movelh_ps(t1, t3);
  r[3].v = _mm_movehl_ps(t3, t1);
}

TESSERA_SIMD void StoreHalves(float* low, float* high, VecF v) {
  _mm_storel_pi(reinterpret_cast<__m64*>(low), v.v);
  _mm_storeh_pi(reinterpret_cast<__m64*>(high), v.v);
}

#endif

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_CORE_CPU_SIMD_TRANSPOSE_H_
