// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10: four random words as a pure function of a 128-bit counter and a 64-bit key.
//
//   PhiloxWords w = Philox4x32({0, 0, 0, 0}, 0, 0);   // 6627e8d5 e169c58d bc57ac4c 9b00dbd8
//
// From J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011, and equal to Random123's philox4x32 with 10 rounds. The header needs nothing but
// <cstdint>, so that CUDA sources and those compiled once per instruction set can include it;
// core/random.h says which key and counter an element of a tensor has.
#ifndef TESSERA_CORE_PHILOX_H_
#define TESSERA_CORE_PHILOX_H_

#include <cstdint>

#if defined(__CUDACC__)
#define TESSERA_PHILOX_FN __host__ __device__ __forceinline__
#else
// Inlined everywhere: no copy compiled for one instruction set can be merged with another's.
#define TESSERA_PHILOX_FN inline __attribute__((always_inline))
#endif

namespace tessera {

struct PhiloxWords {
  uint32_t v[4];
};

// One of the ten rounds.
TESSERA_PHILOX_FN constexpr PhiloxWords PhiloxRound(PhiloxWords c, uint32_t k0, uint32_t k1) {
  const uint64_t p0 = uint64_t{0xD2511F53u} * c.v[0];
  const uint64_t p1 = uint64_t{0xCD9E8D57u} * c.v[2];
  return PhiloxWords{{static_cast<uint32_t>(p1 >> 32) ^ c.v[1] ^ k0, static_cast<uint32_t>(p1),
                      static_cast<uint32_t>(p0 >> 32) ^ c.v[3] ^ k1, static_cast<uint32_t>(p0)}};
}

// The four words of `counter` (least significant first) under the key (k0 = low word, k1 = high).
TESSERA_PHILOX_FN constexpr PhiloxWords Philox4x32(PhiloxWords counter, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    counter = PhiloxRound(counter, k0, k1);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// 24 random bits as a float in [0, 1): multiples of 2^-24, all equally likely.
TESSERA_PHILOX_FN constexpr float UnitFloat(uint32_t word) {
  return static_cast<float>(word >> 8) * (1.0f / 16777216.0f);
}

}  // namespace tessera

#endif  // TESSERA_CORE_PHILOX_H_
