// SPDX-License-Identifier: Apache-2.0
// Where the numbers of rows of integers lie. For quantized_isa.cc.
#ifndef TESSERA_OPS_QUANTIZED_QUANTIZED_BYTES_H_
#define TESSERA_OPS_QUANTIZED_QUANTIZED_BYTES_H_

#include <cstdint>

#include "core/cpu/simd.h"
#include "ops/quantized/quantized_rows.h"

namespace tessera::TESSERA_ISA {
namespace {

constexpr int64_t kGroup = kQuantGroup;
// Vectors of a group's columns.
constexpr int64_t kSteps = kGroup / 4;
// What only processors of before 2013 run counts by its size.
#if defined(TESSERA_ISA_BASELINE)
constexpr bool kSmall = true;
#else
constexpr bool kSmall = false;
#endif
constexpr int kUnrolled = kSmall ? 1 : 8;

// Of a block in memory: 32 columns of int8.
constexpr int64_t BlockColumns(QuantType type) {
  return type == QuantType::kInt8 ? kGroup : LayoutOf(type).columns;
}
constexpr int64_t BlockBytes(QuantType type) {
  return type == QuantType::kInt8 ? kGroup : LayoutOf(type).bytes;
}
// Of kLanes outputs, in groups of 32.
constexpr int64_t LanesBytes(QuantType type, int64_t groups) {
  return groups * (kLanes * kGroup * BlockBytes(type) / BlockColumns(type));
}

// Whether bytes of numbers have a sign, rather than being too large by the layout's `zero`.
constexpr bool IsSigned(QuantType type) {
  return type == QuantType::kInt8 || type == QuantType::kQ8_0 || IsIq4(type);
}
// Scales of a group of 32.
constexpr int Parts(QuantType type) { return LayoutOf(type).group == 16 ? 2 : 1; }

// Columns of a row that a vector of its bytes holds.
constexpr int64_t VectorColumns(QuantType type) {
  return (type == QuantType::kQ4_0 ? 8 : 4) * kLanes;
}

TESSERA_SIMD const uint8_t* BlockAt(QuantType type, const uint8_t* p, int64_t begin) {
  return p + begin / BlockColumns(type) * BlockBytes(type) +
         (type == QuantType::kInt8 ? begin % kGroup : 0);
}

#if defined(TESSERA_ISA_NEON)
TESSERA_SIMD int32x4_t Load16(const uint8_t* p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
#else
TESSERA_SIMD __m128i Load16(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
#endif
TESSERA_SIMD uint32_t Word(const uint8_t* p) {
  uint32_t word;
  __builtin_memcpy(&word, p, 4);
  return word;
}

#if defined(TESSERA_ISA_AVX2) || defined(TESSERA_ISA_AVX512VNNI)
// The four bytes at p, p + stride, ...: single loads, which on AMD's processors are faster than a
// gather, and need no way by memory.
TESSERA_SIMD __m128i FourWords(const uint8_t* p, int64_t stride) {
  const auto word = [&](int64_t i) __attribute__((always_inline)) {
    return static_cast<int32_t>(Word(p + i * stride));
  };
  __m128i words = _mm_cvtsi32_si128(word(0));
  words = _mm_insert_epi32(words, word(1), 1);
  words = _mm_insert_epi32(words, word(2), 2);
  return _mm_insert_epi32(words, word(3), 3);
}
#endif

}  // namespace
}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_QUANTIZED_QUANTIZED_BYTES_H_
