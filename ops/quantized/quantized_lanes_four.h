// SPDX-License-Identifier: Apache-2.0
// Of quantized_lanes.h: 4 lanes, those of NEON, with and without dot products, and of the baseline.
#ifndef TESSERA_OPS_QUANTIZED_QUANTIZED_LANES_FOUR_H_
#define TESSERA_OPS_QUANTIZED_QUANTIZED_LANES_FOUR_H_

#include <cstdint>

#include "core/cpu/simd.h"
#include "ops/quantized/quantized_bytes.h"

namespace tessera::TESSERA_ISA {
namespace {

#if defined(TESSERA_ISA_NEON)
constexpr int kMostRows = 4;
#else
constexpr int kMostRows = 2;
#endif

constexpr int32_t ZeroOf(QuantType type) { return LayoutOf(type).zero; }

TESSERA_SIMD VecI WordsAt(const uint8_t* p, int64_t stride) {
  int32_t words[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) __builtin_memcpy(words + i, p + i * stride, 4);
  return Load(words);
}
TESSERA_SIMD VecF HalvesOf(VecI words) {
  F16 halves[kLanes];
  for (int32_t i = 0; i < kLanes; ++i) halves[i].bits = static_cast<uint16_t>(words.v[i]);
  return Load(halves);
}

template <int kRun>
TESSERA_SIMD VecI Run(const uint8_t* p, int64_t) {
  return FromI(Load16(p));
}
TESSERA_SIMD VecI SingleBits(const uint8_t* p, int64_t, int64_t c) {
  // Byte i keeps bit i. Adding 0x7f then sets the top bit of every byte that is not zero.
  const auto eight = [](uint64_t byte) {
    const uint64_t bits = byte * 0x0101010101010101 & 0x8040201008040201;
    return static_cast<int64_t>((bits + 0x7f7f7f7f7f7f7f7f) >> 7 & 0x0101010101010101);
  };
  const uint8_t* const from = p + c % kGroup / 8;
  typedef int64_t Pair __attribute__((vector_size(16)));
  return {reinterpret_cast<RawI>(Pair{eight(from[0]), eight(from[1])})};
}

TESSERA_SIMD VecI Sixteens(const uint8_t* p, int64_t) { return FromI(Load16(p)); }

template <QuantType kType>
TESSERA_SIMD VecI Bytes(const uint8_t* p, int64_t begin) {
  const uint8_t* const block = BlockAt(kType, p, begin);
  if constexpr (kType == QuantType::kInt8) return FromI(Load16(block));
  return FromI(Load16(block + 2 + begin % kGroup));
}

#if defined(TESSERA_ISA_NEON)

TESSERA_SIMD int8x16_t BytesOf(VecI v) { return vreinterpretq_s8_s32(RawOf(v)); }

TESSERA_SIMD VecI ShiftEach(VecI v, VecI by) {
  return FromI(
      vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(RawOf(v)), vnegq_s32(RawOf(by)))));
}
TESSERA_SIMD VecI Iq4(VecI v) {
  return FromI(
      vreinterpretq_s32_s8(vqtbl1q_s8(vld1q_s8(kIq4Numbers), vreinterpretq_u8_s8(BytesOf(v)))));
}

TESSERA_SIMD void SumQuarters(VecI (&s)[kLanes]) {
  s[0] =
      FromI(vpaddq_s32(vpaddq_s32(RawOf(s[0]), RawOf(s[1])), vpaddq_s32(RawOf(s[2]), RawOf(s[3]))));
}

// Weights without a sign are below 128, so that they are the same with one.
template <QuantType kType>
TESSERA_SIMD VecI Dot(VecI from, VecI w, VecI x) {
#if defined(TESSERA_ISA_NEONDOT)
  return FromI(vdotq_s32(RawOf(from), BytesOf(w), BytesOf(x)));
#else
  const int16x8_t lower = vmull_s8(vget_low_s8(BytesOf(w)), vget_low_s8(BytesOf(x)));
  const int16x8_t upper = vmull_high_s8(BytesOf(w), BytesOf(x));
  return from + FromI(vpaddq_s32(vpaddlq_s16(lower), vpaddlq_s16(upper)));
#endif
}

#else

TESSERA_SIMD VecI ShiftEach(VecI v, VecI by) {
  return FromI(_mm_srl_epi32(RawOf(v), _mm_cvtsi32_si128(by.v[0])));
}
TESSERA_SIMD VecI Iq4(VecI v) {
  int8_t bytes[16];
  __builtin_memcpy(bytes, &v, 16);
  for (int8_t& b : bytes) b = kIq4Numbers[b];
  __builtin_memcpy(&v, bytes, 16);
  return v;
}

TESSERA_SIMD void SumQuarters(VecI (&s)[kLanes]) {
  const auto sum = [](auto a, auto b) __attribute__((always_inline)) {
    return _mm_add_epi32(_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b));
  };
  const auto pair = [](VecI a, VecI b) __attribute__((always_inline)) {
    return _mm_add_epi32(_mm_unpacklo_epi32(RawOf(a), RawOf(b)),
                         _mm_unpackhi_epi32(RawOf(a), RawOf(b)));
  };
  s[0] = FromI(sum(pair(s[0], s[1]), pair(s[2], s[3])));
}

// Even and odd bytes as 16 bits each.
template <QuantType kType>
TESSERA_SIMD VecI Dot(VecI from, VecI w, VecI x) {
  const auto even = [](VecI v) { return _mm_srai_epi16(_mm_slli_epi16(RawOf(v), 8), 8); };
  const auto odd = [](VecI v) { return _mm_srai_epi16(RawOf(v), 8); };
  return from + FromI(_mm_madd_epi16(even(w), even(x))) + FromI(_mm_madd_epi16(odd(w), odd(x)));
}

#endif  // neon

TESSERA_SIMD VecF HalvesAt(const uint8_t* p, int64_t stride) {
  F16 halves[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) __builtin_memcpy(halves + i, p + i * stride, 2);
  return Load(halves);
}

}  // namespace
}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_QUANTIZED_QUANTIZED_LANES_FOUR_H_
