// SPDX-License-Identifier: Apache-2.0
// Of quantized_lanes.h: 16 lanes, and products of bytes in one instruction.
#ifndef TESSERA_OPS_QUANTIZED_QUANTIZED_LANES_AVX512_H_
#define TESSERA_OPS_QUANTIZED_QUANTIZED_LANES_AVX512_H_

#include <cstdint>

#include "core/cpu/simd.h"
#include "ops/quantized/quantized_bytes.h"

namespace tessera::TESSERA_ISA {
namespace {

constexpr int kMostRows = 8;

constexpr int32_t ZeroOf(QuantType type) { return IsSigned(type) ? 128 : LayoutOf(type).zero; }

TESSERA_SIMD VecI WordsAt(const uint8_t* p, int64_t stride) {
  const auto eight = [&](int64_t i) __attribute__((always_inline)) {
    return _mm256_set_m128i(FourWords(p + (i + 4) * stride, stride),
                            FourWords(p + i * stride, stride));
  };
  return FromI(_mm512_inserti64x4(_mm512_castsi256_si512(eight(0)), eight(8), 1));
}
TESSERA_SIMD VecF HalvesOf(VecI words) {
  return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(RawOf(words)))};
}
// Four bytes each, which no block is shorter than.
TESSERA_SIMD VecF HalvesAt(const uint8_t* p, int64_t stride) {
  return HalvesOf(WordsAt(p, stride));
}

template <int kRun>
TESSERA_SIMD VecI Run(const uint8_t* p, int64_t stride) {
  const auto half = [](__m256i lower, __m256i upper) __attribute__((always_inline)) {
    return FromI(_mm512_inserti64x4(_mm512_castsi256_si512(lower), upper, 1));
  };
  if constexpr (kRun == 16) {
    return half(_mm256_broadcastsi128_si256(Load16(p)),
                _mm256_broadcastsi128_si256(Load16(p + stride)));
  } else if constexpr (kRun == 32) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return FromI(_mm512_broadcast_i64x4(both));
  } else {
    return FromI(_mm512_loadu_si512(p));
  }
}
TESSERA_SIMD VecI ShiftEach(VecI v, VecI by) {
  return FromI(_mm512_srlv_epi32(RawOf(v), RawOf(by)));
}
TESSERA_SIMD VecI SingleBits(const uint8_t* p, int64_t stride, int64_t) {
  const uint64_t bits = Word(p) | static_cast<uint64_t>(Word(p + stride)) << 32;
  return FromI(_mm512_maskz_mov_epi8(bits, _mm512_set1_epi8(1)));
}
TESSERA_SIMD VecI Iq4(VecI v) {
  const __m128i numbers = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Numbers));
  const __m512i unsigned_ones =
      _mm512_xor_si512(_mm512_broadcast_i32x4(numbers), _mm512_set1_epi8(-128));
  return FromI(_mm512_shuffle_epi8(unsigned_ones, RawOf(v)));
}

TESSERA_SIMD VecI Sixteens(const uint8_t* p, int64_t stride) {
  __m512i bytes = _mm512_zextsi128_si512(Load16(p));
  bytes = _mm512_inserti32x4(bytes, Load16(p + stride), 1);
  bytes = _mm512_inserti32x4(bytes, Load16(p + 2 * stride), 2);
  return FromI(_mm512_inserti32x4(bytes, Load16(p + 3 * stride), 3));
}

template <QuantType kType>
TESSERA_SIMD VecI Dot(VecI from, VecI w, VecI x) {
  return FromI(_mm512_dpbusd_epi32(RawOf(from), RawOf(w), RawOf(x)));
}

template <QuantType kType>
TESSERA_SIMD VecI Bytes(const uint8_t* p, int64_t begin) {
  const uint8_t* const block = BlockAt(kType, p, begin);
  if constexpr (kType == QuantType::kQ4_0) return Sixteens(block + 2, BlockBytes(kType));
  const auto half = [](const uint8_t* from) __attribute__((always_inline)) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  };
  __m512i bytes;
  if constexpr (kType == QuantType::kInt8) {
    bytes = _mm512_loadu_si512(block);
  } else {
    bytes = _mm512_inserti64x4(_mm512_zextsi256_si512(half(block + 2)), half(block + 36), 1);
  }
  return FromI(_mm512_xor_si512(bytes, _mm512_set1_epi8(-128)));
}

TESSERA_SIMD void SumQuarters(VecI (&s)[kLanes]) {
#pragma GCC unroll 4
  for (int i = 0; i < kLanes; i += 4) {
    __m512i pairs[2];
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const __m512i a = RawOf(s[i + 2 * j]), b = RawOf(s[i + 2 * j + 1]);
      pairs[j] = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    }
    s[i / 4] = FromI(_mm512_add_epi32(_mm512_unpacklo_epi64(pairs[0], pairs[1]),
                                      _mm512_unpackhi_epi64(pairs[0], pairs[1])));
  }
  // The quarters are transposed as a 4x4.
  const auto evens = [](VecI a, VecI b) __attribute__((always_inline)) {
    return FromI(_mm512_shuffle_i32x4(RawOf(a), RawOf(b), 0x88));
  };
  const auto odds = [](VecI a, VecI b) __attribute__((always_inline)) {
    return FromI(_mm512_shuffle_i32x4(RawOf(a), RawOf(b), 0xdd));
  };
  const VecI low[] = {evens(s[0], s[1]), odds(s[0], s[1])};
  const VecI high[] = {evens(s[2], s[3]), odds(s[2], s[3])};
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    s[i] = evens(low[i], high[i]);
    s[i + 2] = odds(low[i], high[i]);
  }
}

}  // namespace
}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_QUANTIZED_QUANTIZED_LANES_AVX512_H_
