// SPDX-License-Identifier: Apache-2.0
// Sixteen bytes of a text at once, on any processor.
//
//   const SixteenBytes bytes = LoadSixteen(text);
//   const uint32_t digits = BitsOf(Between(bytes, '0', '9'));  // bit i: text[i] is a digit
//
// Comparisons, |, & and ~ work byte by byte; a comparison gives all ones or all zeros. A byte has
// no sign.
#ifndef TESSERA_CORPUS_SIXTEEN_BYTES_H_
#define TESSERA_CORPUS_SIXTEEN_BYTES_H_

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tessera::corpus {

typedef uint8_t SixteenBytes __attribute__((vector_size(16)));  // NOLINT: a vector has no using
typedef int8_t ByteMask __attribute__((vector_size(16)));       // NOLINT

inline SixteenBytes LoadSixteen(const char* from) {
  SixteenBytes bytes;
  std::memcpy(&bytes, from, sizeof(bytes));
  return bytes;
}

inline void StoreSixteen(char* to, SixteenBytes bytes) { std::memcpy(to, &bytes, sizeof(bytes)); }

// Where low <= byte <= high.
inline ByteMask Between(SixteenBytes bytes, uint8_t low, uint8_t high) {
  return bytes - low <= static_cast<uint8_t>(high - low);
}

// Bit i is set where byte i is all ones.
inline uint32_t BitsOf(ByteMask mask) {
#if defined(__SSE2__)
  return static_cast<uint32_t>(_mm_movemask_epi8(reinterpret_cast<__m128i>(mask)));
#else
  // Of byte i of a half bit i stays; the product adds the bytes up in the topmost one.
  const auto bits = [](uint64_t half) {
    return static_cast<uint32_t>((half & 0x8040201008040201u) * 0x0101010101010101u >> 56);
  };
  uint64_t halves[2];
  std::memcpy(halves, &mask, sizeof(halves));
  return bits(halves[0]) | bits(halves[1]) << 8;
#endif
}

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_SIXTEEN_BYTES_H_
