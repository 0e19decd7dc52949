// SPDX-License-Identifier: Apache-2.0
// Of quantized_lanes.h: 8 lanes.
#ifndef TESSERA_OPS_QUANTIZED_QUANTIZED_LANES_AVX2_H_
#define TESSERA_OPS_QUANTIZED_QUANTIZED_LANES_AVX2_H_

#include <cstdint>

#include "core/cpu/simd.h"
#include "ops/quantized/quantized_bytes.h"

namespace tessera::TESSERA_ISA {
namespace {

constexpr int kMostRows = 4;

constexpr int32_t ZeroOf(QuantType type) { return LayoutOf(type).zero; }

TESSERA_SIMD VecI WordsAt(const uint8_t* p, int64_t stride) {
  return FromI(_mm256_set_m128i(FourWords(p + 4 * stride, stride), FourWords(p, stride)));
}
TESSERA_SIMD VecF HalvesAt(const uint8_t* p, int64_t stride) {
  const auto half = [&](int64_t i) __attribute__((always_inline)) {
    uint16_t bits;
    __builtin_memcpy(&bits, p + i * stride, 2);
    return bits;
  };
  __m128i halves = _mm_cvtsi32_si128(half(0));
  halves = _mm_insert_epi16(halves, half(1), 1);
  halves = _mm_insert_epi16(halves, half(2), 2);
  halves = _mm_insert_epi16(halves, half(3), 3);
  halves = _mm_insert_epi16(halves, half(4), 4);
  halves = _mm_insert_epi16(halves, half(5), 5);
  halves = _mm_insert_epi16(halves, half(6), 6);
  return {_mm256_cvtph_ps(_mm_insert_epi16(halves, half(7), 7))};
}
TESSERA_SIMD VecF HalvesOf(VecI words) {
  const __m256i lower = RawOf(words & SetI(0xffff));
  return {_mm256_cvtph_ps(
      _mm_packus_epi32(_mm256_castsi256_si128(lower), _mm256_extracti128_si256(lower, 1)))};
}

template <int kRun>
TESSERA_SIMD VecI Run(const uint8_t* p, int64_t) {
  if constexpr (kRun == 16) return FromI(_mm256_broadcastsi128_si256(Load16(p)));
  return Load(reinterpret_cast<const int32_t*>(p));
}
TESSERA_SIMD VecI ShiftEach(VecI v, VecI by) {
  return FromI(_mm256_srlv_epi32(RawOf(v), RawOf(by)));
}
TESSERA_SIMD VecI SingleBits(const uint8_t* p, int64_t, int64_t) {
  // Byte i has its bit's byte, of which it keeps that bit.
  const __m256i bytes = _mm256_shuffle_epi8(
      _mm256_set1_epi32(static_cast<int32_t>(Word(p))),
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i bits =
      _mm256_and_si256(bytes, _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201)));
  return FromI(_mm256_min_epu8(bits, _mm256_set1_epi8(1)));
}
TESSERA_SIMD VecI Iq4(VecI v) {
  const __m128i numbers = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Numbers));
  return FromI(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(numbers), RawOf(v)));
}

TESSERA_SIMD VecI Sixteens(const uint8_t* p, int64_t stride) {
  return FromI(_mm256_inserti128_si256(_mm256_zextsi128_si256(Load16(p)), Load16(p + stride), 1));
}

// Products of bytes, added up in pairs.
template <QuantType kType>
TESSERA_SIMD __m256i PairsOf(VecI w, VecI x) {
  if constexpr (!IsSigned(kType)) return _mm256_maddubs_epi16(RawOf(w), RawOf(x));
  return _mm256_maddubs_epi16(_mm256_abs_epi8(RawOf(w)), _mm256_sign_epi8(RawOf(x), RawOf(w)));
}
// Pairs of pairs, `times` over.
TESSERA_SIMD VecI FoursOf(__m256i pairs, int16_t times) {
  return FromI(_mm256_madd_epi16(pairs, _mm256_set1_epi16(times)));
}

template <QuantType kType>
TESSERA_SIMD VecI Dot(VecI from, VecI w, VecI x) {
  return from + FoursOf(PairsOf<kType>(w, x), 1);
}

template <QuantType kType, int kCount>
TESSERA_SIMD VecI DotOfParts(const VecI (&w)[kCount], const VecI (&upper)[kCount],
                             const VecI (&lower)[kCount]) {
  VecI dot = SetI(0);
  if constexpr (kType == QuantType::kQ4_0 && kCount == 2) {
    // Four products of numbers below 16 and 128 are below 2^15.
    const auto pairs = [&w](const VecI(&x)[kCount]) __attribute__((always_inline)) {
      return _mm256_add_epi16(PairsOf<kType>(w[0], x[0]), PairsOf<kType>(w[1], x[1]));
    };
    dot = FoursOf(pairs(upper), kQuantUpper) + FoursOf(pairs(lower), 1);
  } else {
#pragma GCC unroll 2
    for (int i = 0; i < kCount; ++i) {
      dot = dot + FoursOf(PairsOf<kType>(w[i], upper[i]), kQuantUpper);
      dot = dot + FoursOf(PairsOf<kType>(w[i], lower[i]), 1);
    }
  }
  return dot;
}

template <QuantType kType>
TESSERA_SIMD VecI Bytes(const uint8_t* p, int64_t begin) {
  const uint8_t* const block = BlockAt(kType, p, begin);
  if constexpr (kType == QuantType::kQ4_0) return Sixteens(block + 2, BlockBytes(kType));
  return Load(reinterpret_cast<const int32_t*>(block + (kType == QuantType::kInt8 ? 0 : 2)));
}

TESSERA_SIMD void SumQuarters(VecI (&s)[kLanes]) {
#pragma GCC unroll 2
  for (int i = 0; i < kLanes; i += 4) {
    s[i / 4] = FromI(_mm256_hadd_epi32(_mm256_hadd_epi32(RawOf(s[i]), RawOf(s[i + 1])),
                                       _mm256_hadd_epi32(RawOf(s[i + 2]), RawOf(s[i + 3]))));
  }
  const __m256i a = RawOf(s[0]), b = RawOf(s[1]);
  s[0] = FromI(_mm256_permute2x128_si256(a, b, 0x20));
  s[1] = FromI(_mm256_permute2x128_si256(a, b, 0x31));
}

}  // namespace
}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_QUANTIZED_QUANTIZED_LANES_AVX2_H_
