// SPDX-License-Identifier: Apache-2.0
// The random bits of core/random.h, kLanes blocks at a time.
//
//   uint32_t words[RandomRangeWords(96)];
//   const uint32_t* bits = RandomRange(key_hi, key_lo, index, 96, words);
//   bits[i] == RandomBits({key_hi, key_lo}, index + i)     // for 0 <= i < 96
//
// For sources compiled by tessera_isa_library; see core/cpu/simd.h.
#ifndef TESSERA_CORE_CPU_PHILOX_SIMD_H_
#define TESSERA_CORE_CPU_PHILOX_SIMD_H_

#include "core/cpu/simd.h"

namespace tessera::TESSERA_ISA {

// Products of the even 32-bit lanes as 64 bits, and pairs interleaved within each 128-bit part.
#if defined(TESSERA_ISA_AVX512)
TESSERA_SIMD VecI MulEven(VecI a, VecI b) { return FromI(_mm512_mul_epu32(RawOf(a), RawOf(b))); }
TESSERA_SIMD VecI DownHalf(VecI a) { return FromI(_mm512_srli_epi64(RawOf(a), 32)); }
TESSERA_SIMD VecI UpHalf(VecI a) { return FromI(_mm512_slli_epi64(RawOf(a), 32)); }
TESSERA_SIMD VecI EvenOdd(VecI even, VecI odd) {
  return FromI(_mm512_mask_blend_epi32(0xaaaa, RawOf(even), RawOf(odd)));
}
TESSERA_SIMD VecI Low32(VecI a, VecI b) { return FromI(_mm512_unpacklo_epi32(RawOf(a), RawOf(b))); }
TESSERA_SIMD VecI High32(VecI a, VecI b) {
  return FromI(_mm512_unpackhi_epi32(RawOf(a), RawOf(b)));
}
TESSERA_SIMD VecI Low64(VecI a, VecI b) { return FromI(_mm512_unpacklo_epi64(RawOf(a), RawOf(b))); }
TESSERA_SIMD VecI High64(VecI a, VecI b) {
  return FromI(_mm512_unpackhi_epi64(RawOf(a), RawOf(b)));
}
#elif defined(TESSERA_ISA_AVX2)
TESSERA_SIMD VecI MulEven(VecI a, VecI b) { return FromI(_mm256_mul_epu32(RawOf(a), RawOf(b))); }
TESSERA_SIMD VecI DownHalf(VecI a) { return FromI(_mm256_srli_epi64(RawOf(a), 32)); }
TESSERA_SIMD VecI UpHalf(VecI a) { return FromI(_mm256_slli_epi64(RawOf(a), 32)); }
TESSERA_SIMD VecI EvenOdd(VecI even, VecI odd) {
  return FromI(_mm256_blend_epi32(RawOf(even), RawOf(odd), 0xaa));
}
TESSERA_SIMD VecI Low32(VecI a, VecI b) { return FromI(_mm256_unpacklo_epi32(RawOf(a), RawOf(b))); }
TESSERA_SIMD VecI High32(VecI a, VecI b) {
  return FromI(_mm256_unpackhi_epi32(RawOf(a), RawOf(b)));
}
TESSERA_SIMD VecI Low64(VecI a, VecI b) { return FromI(_mm256_unpacklo_epi64(RawOf(a), RawOf(b))); }
TESSERA_SIMD VecI High64(VecI a, VecI b) {
  return FromI(_mm256_unpackhi_epi64(RawOf(a), RawOf(b)));
}
#elif defined(TESSERA_ISA_NEON)
TESSERA_SIMD uint64x2_t PairsOf(VecI a) { return vreinterpretq_u64_s32(RawOf(a)); }
TESSERA_SIMD VecI FromPairs(uint64x2_t a) { return FromI(vreinterpretq_s32_u64(a)); }
TESSERA_SIMD VecI MulEven(VecI a, VecI b) {
  return FromPairs(vmull_u32(vmovn_u64(PairsOf(a)), vmovn_u64(PairsOf(b))));
}
TESSERA_SIMD VecI DownHalf(VecI a) { return FromPairs(vshrq_n_u64(PairsOf(a), 32)); }
TESSERA_SIMD VecI UpHalf(VecI a) { return FromPairs(vshlq_n_u64(PairsOf(a), 32)); }
TESSERA_SIMD VecI EvenOdd(VecI even, VecI odd) {
  const RawI odd_lanes = {0, -1, 0, -1};
  return Select(MaskOf({odd_lanes}), odd, even);
}
TESSERA_SIMD VecI Low32(VecI a, VecI b) { return FromI(vzip1q_s32(RawOf(a), RawOf(b))); }
TESSERA_SIMD VecI High32(VecI a, VecI b) { return FromI(vzip2q_s32(RawOf(a), RawOf(b))); }
TESSERA_SIMD VecI Low64(VecI a, VecI b) { return FromPairs(vzip1q_u64(PairsOf(a), PairsOf(b))); }
TESSERA_SIMD VecI High64(VecI a, VecI b) { return FromPairs(vzip2q_u64(PairsOf(a), PairsOf(b))); }
#else
TESSERA_SIMD VecI MulEven(VecI a, VecI b) { return FromI(_mm_mul_epu32(RawOf(a), RawOf(b))); }
TESSERA_SIMD VecI DownHalf(VecI a) { return FromI(_mm_srli_epi64(RawOf(a), 32)); }
TESSERA_SIMD VecI UpHalf(VecI a) { return FromI(_mm_slli_epi64(RawOf(a), 32)); }
TESSERA_SIMD VecI EvenOdd(VecI even, VecI odd) {
  const VecI odd_lanes = FromI(_mm_setr_epi32(0, -1, 0, -1));
  return FromI(_mm_or_si128(_mm_andnot_si128(RawOf(odd_lanes), RawOf(even)),
                            _mm_and_si128(RawOf(odd_lanes), RawOf(odd))));
}
TESSERA_SIMD VecI Low32(VecI a, VecI b) { return FromI(_mm_unpacklo_epi32(RawOf(a), RawOf(b))); }
TESSERA_SIMD VecI High32(VecI a, VecI b) { return FromI(_mm_unpackhi_epi32(RawOf(a), RawOf(b))); }
TESSERA_SIMD VecI Low64(VecI a, VecI b) { return FromI(_mm_unpacklo_epi64(RawOf(a), RawOf(b))); }
TESSERA_SIMD VecI High64(VecI a, VecI b) { return FromI(_mm_unpackhi_epi64(RawOf(a), RawOf(b))); }
#endif

// words[0 .. 4*kLanes): blocks first, first + 1, ... of the stream of a key.
TESSERA_SIMD void RandomBlocks(uint64_t key_hi, uint64_t key_lo, uint64_t first, uint32_t* words) {
  // Lane 4g + r computes the block that the interleaving below stores at r * (kLanes / 4) + g.
  const VecI lane = Iota();
  const VecI offset = (lane & SetI(3)) * SetI(kLanes / 4) + ShiftRight<2>(lane);
  const VecI base = SetI(static_cast<int32_t>(static_cast<uint32_t>(first)));
  const VecI high = SetI(static_cast<int32_t>(static_cast<uint32_t>(first >> 32)));
  VecI c0 = base + offset;
  const VecI sign = SetI(INT32_MIN);
  VecI c1 = Select((base ^ sign) > (c0 ^ sign), high + SetI(1), high);  // carry
  VecI c2 = SetI(static_cast<int32_t>(static_cast<uint32_t>(key_hi)));
  VecI c3 = SetI(static_cast<int32_t>(static_cast<uint32_t>(key_hi >> 32)));
  uint32_t k0 = static_cast<uint32_t>(key_lo);
  uint32_t k1 = static_cast<uint32_t>(key_lo >> 32);
  const VecI m0 = SetI(static_cast<int32_t>(0xD2511F53u));
  const VecI m1 = SetI(static_cast<int32_t>(0xCD9E8D57u));
  for (int round = 0; round < 10; ++round) {
    const VecI even0 = MulEven(c0, m0), odd0 = MulEven(DownHalf(c0), m0);
    const VecI even1 = MulEven(c2, m1), odd1 = MulEven(DownHalf(c2), m1);
    const VecI high0 = EvenOdd(DownHalf(even0), odd0), low0 = EvenOdd(even0, UpHalf(odd0));
    const VecI high1 = EvenOdd(DownHalf(even1), odd1), low1 = EvenOdd(even1, UpHalf(odd1));
    c0 = high1 ^ c1 ^ SetI(static_cast<int32_t>(k0));
    c1 = low1;
    c2 = high0 ^ c3 ^ SetI(static_cast<int32_t>(k1));
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const VecI a = Low32(c0, c1), b = High32(c0, c1), c = Low32(c2, c3), d = High32(c2, c3);
  int32_t* to = reinterpret_cast<int32_t*>(words);
  Store(to, Low64(a, c));
  Store(to + kLanes, High64(a, c));
  Store(to + 2 * kLanes, Low64(b, d));
  Store(to + 3 * kLanes, High64(b, d));
}

// Room that RandomRange needs for n elements.
static constexpr int64_t RandomRangeWords(int64_t n) { return n + 3 + 4 * kLanes; }

// Elements [index, index + n) of the stream; the result points into `words`.
TESSERA_SIMD const uint32_t* RandomRange(uint64_t key_hi, uint64_t key_lo, uint64_t index,
                                         int64_t n, uint32_t* words) {
  const int64_t skip = static_cast<int64_t>(index % 4);
  for (int64_t done = 0; done < skip + n; done += 4 * kLanes) {
    RandomBlocks(key_hi, key_lo, index / 4 + static_cast<uint64_t>(done) / 4, words + done);
  }
  return words + skip;
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_CORE_CPU_PHILOX_SIMD_H_
