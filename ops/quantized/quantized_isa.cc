// SPDX-License-Identifier: Apache-2.0
// Products of rows of integers for one instruction set.
//
// The order of a sum (quantized_matrix.h) is one chain over groups of 32 columns, whatever the
// instruction set and the number of rows (`baseline` has no fma and rounds each product). As many
// outputs as a vector has lanes are taken at a time: a panel of their weights is brought into
// columns, four bytes of each output side by side, and used for all rows of x.
//
// int8, q8_0 and q4_0 have functions of their own. The other types follow kQuantLayouts: Numbers()
// gives a vector of a row's columns as bytes, and PutScales() the scales of kLanes rows.
#include <cstddef>
#include <type_traits>

#include "core/cpu/row_dispatch.h"
#include "core/cpu/simd.h"
#include "core/cpu/simd_transpose.h"
#include "ops/quantized/quantized_rows.h"

namespace tessera::TESSERA_ISA {
namespace {

constexpr int64_t kGroup = kQuantGroup;
// Groups of a panel, which stays in the first-level cache.
constexpr int64_t kPanelGroups = 16;
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

// ---- What an instruction set has ----------------------------------------------------------------
//
// ZeroOf: what the integers of weights are too large by, which is what makes them unsigned where
// that is needed. Dot: from + the products of four neighbours, exact. DotOfParts: those of vectors
// with numbers in two parts, upper ones kQuantUpper times, added up. HalvesAt: the float16 numbers
// at p + i * stride. Bytes: those of VectorColumns of a row `p` from column `begin` on, as they
// stand there. Sixteens: 16 bytes at p, p + stride, ... SumQuarters: lane i of s[q] becomes the sum
// of the four lanes of the q-th quarter (of so many as there are) of what s[i] was.
//
// WordsAt: the four bytes at p + i * stride. HalvesOf: the lower 16 bits of lanes as float16. Run:
// the bytes that have a field of a vector's columns, whose first 16 are at p, for fields of runs of
// 16 (each 16 bytes serve 32 columns, the next ones are at p + stride), 32 and 64. ShiftEach: each
// lane of its own, which is the same in the baseline. SingleBits: bits at p, for 32 columns from c
// on and those at p + stride, as bytes. Iq4: kIq4Numbers of bytes, larger by ZeroOf.

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

#if defined(TESSERA_ISA_AVX512VNNI)

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

#elif defined(TESSERA_ISA_AVX2)

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

#else  // 4 lanes: neon, baseline

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
  const int16x8_t lower = vmull_s8(vget_low_s8(BytesOf(w)), vget_low_s8(BytesOf(x)));
  const int16x8_t upper = vmull_high_s8(BytesOf(w), BytesOf(x));
  return from + FromI(vpaddq_s32(vpaddlq_s16(lower), vpaddlq_s16(upper)));
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

#endif

#if !defined(TESSERA_ISA_AVX512VNNI) && !defined(TESSERA_ISA_AVX2)
TESSERA_SIMD VecF HalvesAt(const uint8_t* p, int64_t stride) {
  F16 halves[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) __builtin_memcpy(halves + i, p + i * stride, 2);
  return Load(halves);
}
#endif

// ---- Panels -------------------------------------------------------------------------------------

// Groups of kLanes outputs: `bytes` [groups][kSteps][kLanes][4], `scales` and `minima`
// [groups * Parts][kLanes].
struct Panel {
  alignas(64) int32_t bytes[kPanelGroups * kSteps * kLanes];
  alignas(64) float scales[2 * kPanelGroups * kLanes];
  alignas(64) float minima[2 * kPanelGroups * kLanes];
};

// While columns from `begin` on of kLanes outputs are worked at, as much of the next ones, which
// lie behind them, is brought into the second-level cache: in the order of the memory, which no
// processor's own prefetching sees in rows that are read side by side.
template <QuantType kType>
TESSERA_SIMD const uint8_t* NextOf(const uint8_t* w, int64_t row_bytes, int64_t begin) {
  return w + kLanes * row_bytes + LanesBytes(kType, begin / kGroup);
}
template <int64_t kBytes>
TESSERA_SIMD void Fetch(const uint8_t* from) {
  constexpr int64_t kLine = 64;
#pragma GCC unroll 32
  for (int64_t i = 0; i < kBytes; i += kLine) __builtin_prefetch(from + i, 0, 2);
}

// Whether a type follows its layout, rather than having functions of its own.
constexpr bool ByLayout(QuantType type) {
  return type != QuantType::kInt8 && type != QuantType::kQ8_0 && type != QuantType::kQ4_0;
}

// A field of the columns from c on of the block, and of the next block where that is in the vector.
template <QuantType kType, bool kHigh>
TESSERA_SIMD VecI Field(const uint8_t* block, int64_t c) {
  constexpr QuantBits kField = kHigh ? LayoutOf(kType).high : LayoutOf(kType).low;
  constexpr int64_t kBlockBytes = BlockBytes(kType);
  if constexpr (kField.run == 1) {
    return SingleBits(block + kField.at, kBlockBytes, c);
  } else {
    // Columns of a run, and of the bytes that it fills.
    constexpr int64_t kRun = kField.run, kChunk = kRun * 8 / kField.bits;
    constexpr int64_t kStride = BlockColumns(kType) == kGroup ? kBlockBytes : kRun;
    VecI by = SetI(static_cast<int32_t>(c % kChunk / kRun * kField.bits));
    // Where a vector has columns of more runs than one.
    if constexpr (kRun == 16) by = by + (Iota() & SetI(4));
    if constexpr (kRun == 32) by = by + ShiftRight<3>(Iota()) * SetI(kField.bits);
    static_assert(kRun != 16 || kField.bits == 4);
    const VecI bytes = Run<kRun>(block + kField.at + c / kChunk * kRun + c % kRun, kStride);
    return ShiftEach(bytes, by) & SetI(((1 << kField.bits) - 1) * 0x01010101);
  }
}

// Columns from `column` on, as many as a vector has bytes; too large by ZeroOf.
template <QuantType kType>
TESSERA_SIMD VecI Numbers(const uint8_t* row, int64_t column) {
  const uint8_t* const block = BlockAt(kType, row, column);
  const int64_t c = column % BlockColumns(kType);
  VecI numbers = Field<kType, false>(block, c);
  if constexpr (LayoutOf(kType).high.bits != 0) {
    numbers = numbers | ShiftLeft<LayoutOf(kType).low.bits>(Field<kType, true>(block, c));
  }
  if constexpr (IsIq4(kType)) numbers = Iq4(numbers);
  return numbers;
}

// d of kLanes blocks, and m: four bytes are read of each, none of them behind the block.
template <QuantType kType>
TESSERA_SIMD VecF ScaleOfBlocks(const uint8_t* block, int64_t stride, VecF* m) {
  constexpr QuantLayout kLayout = LayoutOf(kType);
  if constexpr (kLayout.has_minima()) {
    static_assert(kLayout.m == kLayout.d + 2);
    const VecI words = WordsAt(block + kLayout.d, stride);
    *m = HalvesOf(ShiftRight<16>(words));
    return HalvesOf(words);
  } else if constexpr (kLayout.d == 0) {
    return HalvesOf(WordsAt(block, stride));
  } else {
    return HalvesOf(ShiftRight<16>(WordsAt(block + kLayout.d - 2, stride)));
  }
}

// Bits of the words from byte kFrom of kLanes blocks on: numbers of the block's integers.
template <int kFrom>
TESSERA_SIMD VecI BitsOfWords(const VecI* words, const QuantBits& field, int i) {
  const int byte = field.ByteOf(i) - kFrom;
  const VecI by = SetI(byte % 4 * 8 + field.ShiftOf(i));
  return ShiftEach(words[byte / 4], by) & SetI((1 << field.bits) - 1);
}

// The scales [groups][kLanes] of one block of each of kLanes outputs, and the minima.
template <QuantType kType>
TESSERA_SIMD void PutScales(const uint8_t* block, int64_t stride, float* scales, float* minima) {
  constexpr QuantLayout kLayout = LayoutOf(kType);
  constexpr int kGroups = kLayout.groups();
  VecF m = Zero();
  const VecF d = ScaleOfBlocks<kType>(block, stride, &m);
  if constexpr (kLayout.columns == kGroup) {
    Store(scales, d);
    if constexpr (kLayout.has_minima()) Store(minima, -m);
  } else {
    const auto put = [&](int g, VecI scale) __attribute__((always_inline)) {
      Store(scales + g * kLanes, d * ToFloat(scale));
    };
    const auto put_minimum = [&](int g, VecI minimum) __attribute__((always_inline)) {
      Store(minima + g * kLanes, m * ToFloat(minimum));
    };
    constexpr bool kOwnWay = kLayout.scale_low.bits == 0;  // of q4_k and q5_k: quant_blocks.cc
    constexpr int kHighAt = kLayout.scale_high.at, kLowAt = kLayout.scale_low.at;
    constexpr int kFrom = kOwnWay                                            ? 4
                          : kLayout.scale_high.bits == 0 || kLowAt < kHighAt ? kLowAt
                                                                             : kHighAt / 4 * 4;
    constexpr int kWords = kLayout.group == 16 && kLayout.scale_high.bits == 0 ? 4
                           : kType == QuantType::kIq4Xs                        ? 2
                                                                               : 3;
    VecI words[kWords];
#pragma GCC unroll 4
    for (int i = 0; i < kWords; ++i) words[i] = WordsAt(block + kFrom + 4 * i, stride);
    if constexpr (kOwnWay) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const VecI by = SetI(8 * i), six = SetI(63), four = SetI(15), two = SetI(0x30);
        const VecI a = ShiftEach(words[0], by), b = ShiftEach(words[1], by);
        const VecI c = ShiftEach(words[2], by);
        put(i, a & six);
        put_minimum(i, b & six);
        put(i + 4, (c & four) | (ShiftRight<2>(a) & two));
        put_minimum(i + 4, (ShiftRight<4>(c) & four) | (ShiftRight<2>(b) & two));
      }
    } else {
#pragma GCC unroll 16
      for (int g = 0; g < kGroups; ++g) {
        VecI scale = BitsOfWords<kFrom>(words, kLayout.scale_low, g);
        if constexpr (kLayout.scale_low.bits == 8) {
          scale = ShiftRightArithmetic<24>(ShiftLeft<24>(scale));
        }
        if constexpr (kLayout.scale_high.bits != 0) {
          scale = scale | ShiftLeft<kLayout.scale_low.bits>(
                              BitsOfWords<kFrom>(words, kLayout.scale_high, g));
        }
        put(g, scale - SetI(kLayout.scale_zero));
        if constexpr (kLayout.has_minima()) {
          put_minimum(g, BitsOfWords<kFrom>(words, kLayout.scale_low, kGroups + g));
        }
      }
    }
  }
}

// Columns [begin, end) of kLanes outputs, whole vectors.
template <QuantType kType>
TESSERA_SIMD void FillPanel(const uint8_t* w, int64_t row_bytes, int64_t begin, int64_t end,
                            Panel* panel) {
  for (int64_t column = begin; column < end; column += VectorColumns(kType)) {
    VecF square[kLanes];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) {
      const uint8_t* const row = w + i * row_bytes;
      if constexpr (ByLayout(kType)) {
        square[i] = BitsAsFloat(Numbers<kType>(row, column));
      } else {
        square[i] = BitsAsFloat(Bytes<kType>(row, column));
      }
    }
    TransposeSquare(square);
    int32_t* const to = panel->bytes + (column - begin) / 4 * kLanes;
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) {
      const VecI bytes = BitsAsInt(square[i]);
      if constexpr (kType == QuantType::kQ4_0) {
        // Of a group the first columns are the lower halves of its bytes, the last ones the upper.
        const VecI lower = SetI(0x0f0f0f0f);
        int32_t* const group = to + i / (kSteps / 2) * kSteps * kLanes + i % (kSteps / 2) * kLanes;
        Store(group, bytes & lower);
        Store(group + kSteps / 2 * kLanes, ShiftRight<4>(bytes) & lower);
      } else {
        Store(to + i * kLanes, bytes);
      }
    }
  }
  if constexpr (kType == QuantType::kInt8) return;
  const uint8_t* block = BlockAt(kType, w, begin);
  constexpr int64_t kColumns = BlockColumns(kType);
  for (int64_t b = 0; b < (end - begin) / kColumns; ++b, block += BlockBytes(kType)) {
    if constexpr (ByLayout(kType)) {
      const int64_t at = b * LayoutOf(kType).groups() * kLanes;
      PutScales<kType>(block, row_bytes, panel->scales + at, panel->minima + at);
    } else {
      Store(panel->scales + b * kLanes, HalvesAt(block, row_bytes));
    }
  }
}

// ---- Products -----------------------------------------------------------------------------------

TESSERA_SIMD VecI VectorAt(const int8_t* q) { return Load(reinterpret_cast<const int32_t*>(q)); }
TESSERA_SIMD VecI FourAt(const int8_t* q) {
  int32_t four;
  __builtin_memcpy(&four, q, 4);
  return SetI(four);
}

// Sums of a row of x: floats, or those of kInt8, which are integers to the end.
template <QuantType kType>
using SumsOf = std::conditional_t<kType == QuantType::kInt8, VecI, VecF>;
template <QuantType kType>
using SumOf = std::conditional_t<kType == QuantType::kInt8, int32_t, float>;

// Sums of upper parts as those of whole numbers, to which the lower parts' are added.
TESSERA_SIMD VecI Raised(VecI upper) {
  static_assert(kQuantUpper == 255);
  return ShiftLeft<8>(upper) - upper;
}

#if !defined(TESSERA_ISA_AVX2)
template <QuantType kType, int kCount>
TESSERA_SIMD VecI DotOfParts(const VecI (&w)[kCount], const VecI (&upper)[kCount],
                             const VecI (&lower)[kCount]) {
  VecI dot = SetI(0);
#pragma GCC unroll 2
  for (int i = 0; i < kCount; ++i) dot = Dot<kType>(dot, w[i], upper[i]);
  dot = Raised(dot);
#pragma GCC unroll 2
  for (int i = 0; i < kCount; ++i) dot = Dot<kType>(dot, w[i], lower[i]);
  return dot;
}
#endif

// Adds a panel's groups to the sums of kRows rows of x; `next`: what is fetched meanwhile, as many
// bytes as the panel's.
template <QuantType kType, int kRows>
TESSERA_SIMD void AddGroups(const Panel& panel, int64_t groups, const QuantizedActivations& x,
                            int64_t x_groups, const uint8_t* next, SumOf<kType>* sums) {
  SumsOf<kType> sum[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sum[r] = Load(sums + r * kLanes);
  constexpr int kParts = Parts(kType);
  constexpr int64_t kPartSteps = kSteps / kParts;
  for (int64_t g = 0; g < groups; ++g) {
    Fetch<LanesBytes(kType, 1)>(next + LanesBytes(kType, g));
#pragma GCC unroll 2
    for (int p = 0; p < kParts; ++p) {
      // What is added to one sum waits for what was added before: as many as the processor works
      // at are added to in turns.
      constexpr bool kFine = kType != QuantType::kInt8;
      constexpr int kMostSums = kMostRows >= 8 ? 16 : 8;
      constexpr int kOfRow = kMostSums / (kRows * (kFine ? 2 : 1));
      constexpr int kChains = kUnrolled == 1 || kOfRow < 2 ? 1 : kOfRow < 4 ? 2 : 4;
      VecI dot[kRows][kChains], lower[kRows][kFine ? kChains : 1];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int i = 0; i < kChains; ++i) {
          dot[r][i] = SetI(0);
          if constexpr (kFine) lower[r][i] = SetI(0);
        }
        if constexpr (!kFine) {
          dot[r][0] = sum[r];
        } else if constexpr (ZeroOf(kType) != 0) {
          lower[r][0] = SetI(x.offset[2 * (r * x_groups + g) + p]);
        }
      }
#pragma GCC unroll kUnrolled
      for (int64_t c = 0; c < kPartSteps; ++c) {
        const int64_t step = p * kPartSteps + c;
        const VecI w = Load(panel.bytes + (g * kSteps + step) * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const int64_t at = (r * x_groups + g) * kGroup + 4 * step;
          VecI& to = dot[r][c % kChains];
          to = Dot<kType>(to, w, FourAt(x.upper + at));
          if constexpr (kFine) {
            VecI& to_lower = lower[r][c % kChains];
            to_lower = Dot<kType>(to_lower, w, FourAt(x.lower + at));
          }
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int i = 1; i < kChains; ++i) {
          dot[r][0] = dot[r][0] + dot[r][i];
          if constexpr (kFine) lower[r][0] = lower[r][0] + lower[r][i];
        }
        if constexpr (!kFine) {
          sum[r] = dot[r][0];
        } else {
          dot[r][0] = Raised(dot[r][0]) + lower[r][0];
          const VecF x_scale = Set(x.scale[r * x_groups + g]);
          const int64_t at = (kParts * g + p) * kLanes;
          sum[r] = Fma(ToFloat(dot[r][0]), Load(panel.scales + at) * x_scale, sum[r]);
          if constexpr (LayoutOf(kType).has_minima()) {
            const auto total = static_cast<float>(x.offset[2 * (r * x_groups + g) + p]);
            sum[r] = NegFma(Set(total), Load(panel.minima + at) * x_scale, sum[r]);
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) Store(sums + r * kLanes, sum[r]);
}

// Adds columns [begin, end) of kLanes outputs to the sums of one row of x, to which bringing them
// into columns is not worth it: integers are added along the rows of weights instead, which is the
// same, and then the sums of kLanes outputs brought side by side.
template <QuantType kType>
TESSERA_SIMD void AddAlong(const uint8_t* w, int64_t row_bytes, int64_t begin, int64_t end,
                           const QuantizedActivations& x, SumOf<kType>* sums) {
  constexpr int64_t kColumns = VectorColumns(kType) > kGroup ? VectorColumns(kType) : kGroup;
  constexpr int64_t kVectors = kColumns / VectorColumns(kType);
  constexpr int64_t kGroups = kColumns / kGroup;
  constexpr int64_t kQuarters = kLanes / 4;
  SumsOf<kType> sum = Load(sums);
  for (int64_t column = begin; column < end; column += kColumns) {
    VecI dots[kLanes];
    const int64_t from = column - begin;
    Fetch<LanesBytes(kType, kGroups)>(NextOf<kType>(w, row_bytes, column));
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) {
      const uint8_t* const row = w + i * row_bytes;
      if constexpr (kType == QuantType::kQ4_0) {
        const auto half = [from](const int8_t* part, int64_t at) __attribute__((always_inline)) {
          return Sixteens(reinterpret_cast<const uint8_t*>(part) + from + at, kGroup);
        };
        const VecI bytes = Bytes<kType>(row, column), four = SetI(0x0f0f0f0f);
        const VecI numbers[] = {bytes & four, ShiftRight<4>(bytes) & four};
        const VecI upper[] = {half(x.upper, 0), half(x.upper, 16)};
        const VecI lower[] = {half(x.lower, 0), half(x.lower, 16)};
        dots[i] = DotOfParts<kType>(numbers, upper, lower);
      } else {
        dots[i] = SetI(0);
        VecI bytes[kVectors], upper[kVectors], lower[kVectors];
#pragma GCC unroll 2
        for (int64_t v = 0; v < kVectors; ++v) {
          const int64_t at = v * VectorColumns(kType);
          bytes[v] = Bytes<kType>(row, column + at);
          upper[v] = VectorAt(x.upper + from + at);
          if constexpr (kType == QuantType::kInt8) {
            dots[i] = Dot<kType>(dots[i], bytes[v], upper[v]);
          } else {
            lower[v] = VectorAt(x.lower + from + at);
          }
        }
        if constexpr (kType != QuantType::kInt8) dots[i] = DotOfParts<kType>(bytes, upper, lower);
      }
    }
    SumQuarters(dots);
    if constexpr (kType == QuantType::kInt8) {
#pragma GCC unroll 4
      for (int64_t i = 0; i < kQuarters; ++i) sum = sum + dots[i];
    } else {
      constexpr int64_t kOfGroup = kQuarters / kGroups;
      const uint8_t* block = BlockAt(kType, w, column);
#pragma GCC unroll 4
      for (int64_t i = 0; i < kGroups; ++i, block += BlockBytes(kType)) {
        const int64_t g = (column - begin) / kGroup + i;
        VecI dot = dots[i * kOfGroup];
        if constexpr (kOfGroup == 2) dot = dot + dots[i * kOfGroup + 1];
        if constexpr (ZeroOf(kType) != 0) dot = dot + SetI(x.offset[2 * g]);
        sum = Fma(ToFloat(dot), HalvesAt(block, row_bytes) * Set(x.scale[g]), sum);
      }
    }
  }
  Store(sums, sum);
}

// Likewise of types that follow their layout: whole blocks.
template <QuantType kType>
TESSERA_SIMD void AddBlocksAlong(const uint8_t* w, int64_t row_bytes, int64_t begin, int64_t end,
                                 const QuantizedActivations& x, float* sums) {
  constexpr QuantLayout kLayout = LayoutOf(kType);
  constexpr int64_t kVector = 4 * kLanes;
  // Columns that scales are made of, and those that are added up at a time.
  constexpr int64_t kColumns = kVector > kLayout.columns ? kVector : kLayout.columns;
  constexpr int64_t kStep = kVector > kLayout.group ? kVector : kLayout.group;
  constexpr int64_t kGroups = kStep / kLayout.group;
  constexpr int64_t kQuarters = kLanes / 4;
  constexpr int64_t kAllScales = kColumns / kLayout.group * kLanes;
  VecF sum = Load(sums);
  for (int64_t column = begin; column < end; column += kColumns) {
    alignas(64) float scales[kAllScales];
    alignas(64) float minima[kAllScales];
#pragma GCC unroll 2
    for (int64_t b = 0; b < kColumns / kLayout.columns; ++b) {
      const int64_t at = b * kLayout.groups() * kLanes;
      PutScales<kType>(BlockAt(kType, w, column) + b * BlockBytes(kType), row_bytes, scales + at,
                       minima + at);
    }
    const uint8_t* const next = NextOf<kType>(w, row_bytes, column);
    for (int64_t in_block = 0; in_block < kColumns; in_block += kStep) {
      const int64_t from = column + in_block;
      Fetch<LanesBytes(kType, 1) * kStep / kGroup>(next + LanesBytes(kType, 1) * in_block / kGroup);
      VecI dots[kLanes];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) {
        VecI numbers[kStep / kVector], upper[kStep / kVector], lower[kStep / kVector];
#pragma GCC unroll 2
        for (int64_t v = 0; v < kStep; v += kVector) {
          numbers[v / kVector] = Numbers<kType>(w + i * row_bytes, from + v);
          upper[v / kVector] = VectorAt(x.upper + (from - begin + v));
          lower[v / kVector] = VectorAt(x.lower + (from - begin + v));
        }
        dots[i] = DotOfParts<kType>(numbers, upper, lower);
      }
      SumQuarters(dots);
      constexpr int64_t kOfGroup = kGroups > kQuarters ? 1 : kQuarters / kGroups;
#pragma GCC unroll 4
      for (int64_t i = 0; i < kGroups; ++i) {
        const int64_t begins = from - begin + i * kLayout.group;
        const int32_t offset = x.offset[2 * (begins / kGroup) + begins % kGroup / 16];
        const VecF x_scale = Set(x.scale[begins / kGroup]);
        const int64_t at = (in_block / kLayout.group + i) * kLanes;
        VecI dot = dots[i * kOfGroup];
        if constexpr (kOfGroup == 2) dot = dot + dots[i * kOfGroup + 1];
        if constexpr (ZeroOf(kType) != 0) dot = dot + SetI(offset);
        sum = Fma(ToFloat(dot), Load(scales + at) * x_scale, sum);
        if constexpr (kLayout.has_minima()) {
          sum = NegFma(Set(static_cast<float>(offset)), Load(minima + at) * x_scale, sum);
        }
      }
    }
  }
  Store(sums, sum);
}

template <QuantType kType>
void AddPanel(const Panel& panel, int64_t groups, const QuantizedActivations& x, int64_t x_groups,
              int64_t rows, const uint8_t* next, SumOf<kType>* sums) {
  int64_t i = 0;
  const auto add = [&](auto of) __attribute__((always_inline)) {
    constexpr int kRows = decltype(of)::value;
    for (; i + kRows <= rows; i += kRows) {
      AddGroups<kType, kRows>(panel, groups, x.Row(i, x_groups), x_groups, next, sums + i * kLanes);
    }
  };
  add(std::integral_constant<int, kMostRows>());
  if constexpr (kMostRows > 4) add(std::integral_constant<int, 4>());
  add(std::integral_constant<int, 1>());
}

// The rows of x times kLanes outputs or fewer.
template <QuantType kType>
void Outputs(const uint8_t* w, int64_t row_bytes, int64_t count, int64_t columns,
             const QuantizedActivations& x, int64_t rows, float* sums, float* y, int64_t y_stride) {
  constexpr bool kWhole = kType == QuantType::kInt8;
  const int64_t x_groups = 2 * QuantPairs(columns);
  const int64_t all = kWhole ? x_groups * kGroup : columns;
  auto* const running = reinterpret_cast<SumOf<kType>*>(sums);
  for (int64_t i = 0; i < rows * kLanes; ++i) running[i] = 0;
  Panel panel;
  for (int64_t begin = 0; begin < all; begin += kPanelGroups * kGroup) {
    const int64_t left = (all - begin) / kGroup;
    const int64_t groups = left < kPanelGroups ? left : kPanelGroups;
    const int64_t width = groups * kGroup;
    const QuantizedActivations from = x.From(begin);
    const bool whole = count == kLanes && width % VectorColumns(kType) == 0;
    if constexpr (!kSmall) {
      if (whole && rows == 1) {
        if constexpr (ByLayout(kType)) {
          AddBlocksAlong<kType>(w, row_bytes, begin, begin + width, from, running);
        } else {
          AddAlong<kType>(w, row_bytes, begin, begin + width, from, running);
        }
        continue;
      }
    }
    // Zeros stand for what is not there.
    constexpr int64_t kStride = LanesBytes(kType, kPanelGroups) / kLanes;
    uint8_t part[kLanes * kStride];
    if (!whole) __builtin_memset(part, 0, sizeof(part));
    for (int64_t o = 0; !whole && o < count; ++o) {
      __builtin_memcpy(part + o * kStride, BlockAt(kType, w + o * row_bytes, begin),
                       static_cast<size_t>(LanesBytes(kType, groups) / kLanes));
    }
    const int64_t padded =
        (width + VectorColumns(kType) - 1) / VectorColumns(kType) * VectorColumns(kType);
    FillPanel<kType>(whole ? w : part, whole ? row_bytes : kStride, whole ? begin : 0,
                     whole ? begin + width : padded, &panel);
    AddPanel<kType>(panel, groups, from, x_groups, rows, NextOf<kType>(w, row_bytes, begin),
                    running);
  }
  float scales[kLanes] = {};
  for (int64_t o = 0; kWhole && o < count; ++o) {
    __builtin_memcpy(scales + o, w + o * row_bytes + all, 4);
  }
  for (int64_t i = 0; i < rows; ++i) {
    VecF sum;
    if constexpr (kWhole) {
      // What unsigned weights add beyond 32 bits, the offset takes away again.
      const VecI total = Load(running + i * kLanes) + SetI(x.offset[2 * i * x_groups]);
      sum = ToFloat(total) * (Load(scales) * Set(x.scale[i * x_groups]));
    } else {
      sum = Load(running + i * kLanes);
    }
    StoreN(y + i * y_stride, sum, count);
  }
}

void Product(QuantType type, const uint8_t* w, int64_t row_bytes, int64_t outputs, int64_t columns,
             const QuantizedActivations& x, int64_t rows, float* sums, float* y, int64_t y_stride) {
  for (int64_t j = 0; j < outputs; j += kLanes) {
    const int64_t count = outputs - j < kLanes ? outputs - j : kLanes;
    const auto run = [&](auto* of) {
      of(w + j * row_bytes, row_bytes, count, columns, x, rows, sums, y + j, y_stride);
    };
    switch (type) {
      case QuantType::kInt8:
        run(Outputs<QuantType::kInt8>);
        break;
      case QuantType::kQ8_0:
        run(Outputs<QuantType::kQ8_0>);
        break;
      case QuantType::kQ4_0:
        run(Outputs<QuantType::kQ4_0>);
        break;
      case QuantType::kQ4_1:
        run(Outputs<QuantType::kQ4_1>);
        break;
      case QuantType::kQ5_0:
        run(Outputs<QuantType::kQ5_0>);
        break;
      case QuantType::kQ5_1:
        run(Outputs<QuantType::kQ5_1>);
        break;
      case QuantType::kQ2K:
        run(Outputs<QuantType::kQ2K>);
        break;
      case QuantType::kQ3K:
        run(Outputs<QuantType::kQ3K>);
        break;
      case QuantType::kQ4K:
        run(Outputs<QuantType::kQ4K>);
        break;
      case QuantType::kQ5K:
        run(Outputs<QuantType::kQ5K>);
        break;
      case QuantType::kQ6K:
        run(Outputs<QuantType::kQ6K>);
        break;
      case QuantType::kIq4Nl:
        run(Outputs<QuantType::kIq4Nl>);
        break;
      case QuantType::kIq4Xs:
        run(Outputs<QuantType::kIq4Xs>);
        break;
    }
  }
}

// ---- Activations --------------------------------------------------------------------------------

// At most a group as float32, zeros behind it.
struct Group {
  float x[kGroup];
};
TESSERA_SIMD Group LoadGroup(RowType type, const void* row, int64_t begin, int64_t columns) {
  Group group;
  DispatchRow(
      type, [&](auto zero) __attribute__((always_inline)) {
        const auto* const x = static_cast<const decltype(zero)*>(row);
        for (int64_t i = 0; i < kGroup; i += kLanes) {
          const int64_t left = columns - begin - i;
          Store(group.x + i, left > 0 ? LoadN(x + begin + i, left) : Zero());
        }
      });
  return group;
}

// The bits of the largest |x|: magnitudes lie in the order of their bits, NaN above all.
TESSERA_SIMD int32_t LargestBits(const Group& group) {
  int32_t bits[kGroup];
  for (int64_t i = 0; i < kGroup; i += kLanes) Store(bits + i, BitsAsInt(Abs(Load(group.x + i))));
  int32_t most = 0;
  for (const int32_t b : bits) most = b > most ? b : most;
  return most;
}

struct Scales {
  float scale;    // integers to x
  float inverse;  // x to integers
};
// `most`: the largest integer.
TESSERA_SIMD Scales ScalesOf(int32_t largest_bits, float most) {
  constexpr float kMost = 3.4028235e38f;
  float largest;
  __builtin_memcpy(&largest, &largest_bits, 4);
  if (!(largest <= kMost)) return {__builtin_nanf(""), 0.0f};
  // What has no inverse counts as zero.
  if (largest < most / kMost) return {0.0f, 0.0f};
  return {largest / most, most / largest};
}

// Gives the sums of the group's first and second half. `fine`: in two parts.
TESSERA_SIMD void QuantizeGroup(const Group& group, float inverse, bool fine, int8_t* upper,
                                int8_t* lower, int32_t (&sums)[2]) {
  int32_t values[kGroup] = {};
  if (inverse != 0.0f) {
    for (int64_t i = 0; i < kGroup; i += kLanes) {
      Store(values + i, ToInt(Load(group.x + i) * Set(inverse)));
    }
  }
  for (int64_t half = 0; half < 2; ++half) {
    int32_t sum = 0;
    for (int64_t i = half * kGroup / 2; i < (half + 1) * kGroup / 2; ++i) sum += values[i];
    sums[half] = sum;
  }
  int32_t uppers[kGroup];
  for (int64_t i = 0; i < kGroup; i += kLanes) {
    const VecI v = Load(values + i);
    // Whole numbers of 255 and half of one are never near: no rounding gives another integer.
    Store(uppers + i, fine ? ToInt(ToFloat(v) * Set(1.0f / kQuantUpper)) : v);
  }
  for (int64_t i = 0; i < kGroup; ++i) {
    upper[i] = static_cast<int8_t>(uppers[i]);
    if (fine) lower[i] = static_cast<int8_t>(values[i] - kQuantUpper * uppers[i]);
  }
}

void Quantize(QuantType type, RowType row_type, const void* x, int64_t columns,
              const QuantizedActivations& to) {
  const bool whole = type == QuantType::kInt8;
  const int64_t padded = QuantPairs(columns) * kQuantPair;
  int32_t largest = 0;
  for (int64_t begin = 0; whole && begin < padded; begin += kGroup) {
    const int32_t most = LargestBits(LoadGroup(row_type, x, begin, columns));
    largest = most > largest ? most : largest;
  }
  const int32_t factor = LayoutOf(type).has_minima() ? 1 : -ZeroOf(type);
  int32_t sum = 0;
  for (int64_t begin = 0; begin < padded; begin += kGroup) {
    const Group group = LoadGroup(row_type, x, begin, columns);
    const Scales scales = whole ? ScalesOf(largest, 127.0f)
                                : ScalesOf(LargestBits(group), static_cast<float>(kQuantMost));
    const int64_t g = begin / kGroup;
    int32_t halves[2];
    QuantizeGroup(group, scales.inverse, !whole, to.upper + begin,
                  whole ? nullptr : to.lower + begin, halves);
    if (Parts(type) == 1) halves[0] += halves[1];
    to.offset[2 * g] = factor * halves[0];
    to.offset[2 * g + 1] = factor * halves[1];
    to.scale[g] = scales.scale;
    if (whole) sum += to.offset[2 * g];
  }
  if (whole) to.offset[0] = sum;
}

void Finish(RowType row_type, const float* y, const void* bias, int64_t n, void* out) {
  DispatchRow(
      row_type, [&](auto zero) __attribute__((always_inline)) {
        using T = decltype(zero);
        for (int64_t j = 0; j < n; j += kLanes) {
          const int64_t lanes = n - j < kLanes ? n - j : kLanes;
          VecF v = LoadN(y + j, lanes);
          if (bias != nullptr) v = v + LoadN(static_cast<const T*>(bias) + j, lanes);
          StoreN(static_cast<T*>(out) + j, v, lanes);
        }
      });
}

}  // namespace

const QuantizedRows kQuantizedRows = {Quantize, Product, Finish};

}  // namespace tessera::TESSERA_ISA
