// SPDX-License-Identifier: Apache-2.0
// Sums of float64 without rounding, so that neither the order of what is added nor who adds it
// changes a bit: a sum is a fixed-point number of all that float64 can hold, as digits of 32 bits
// in words of 64 (U. Kulisch, "Computer Arithmetic and Validity", 2008). Sums of parts, also of
// ranks, come together by adding their words, and are rounded once, when all is there.
//
//   int64_t words[kSumWords] = {};
//   AddExactly(x, [&](int i, int64_t digit) { words[i] += digit; });
//   double sum = RoundedSum(words);
//
// A word takes 2^31 additions. For the CPU and for CUDA sources.
#ifndef TESSERA_OPTIM_EXACT_SUM_H_
#define TESSERA_OPTIM_EXACT_SUM_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#ifdef __CUDACC__
#define TESSERA_EXACT_FN __host__ __device__ __forceinline__
#else
#define TESSERA_EXACT_FN inline
#endif

namespace tessera::optim {

// Digit i counts 2^(32 i - kSumBits); two words more count what is no number, and infinities.
inline constexpr int kSumBits = 1088;
inline constexpr int kSumDigits = 68;
inline constexpr int kSumNaN = kSumDigits;
inline constexpr int kSumInfinite = kSumDigits + 1;
inline constexpr int kSumWords = kSumDigits + 2;

// Calls add(word, what it grows by) for each word that changes. An infinity counts as positive.
template <typename Add>
TESSERA_EXACT_FN void AddExactly(double x, const Add& add) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof(bits));
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  if (exponent == 0x7ff) {
    add(fraction != 0 ? kSumNaN : kSumInfinite, int64_t{1});
    return;
  }
  const uint64_t mantissa = exponent == 0 ? fraction : fraction | uint64_t{1} << 52;
  if (mantissa == 0) return;
  const int place = (exponent == 0 ? 1 : exponent) - 1075 + kSumBits;
  const int shift = place % 32;
  const uint64_t low = mantissa << shift;
  const uint64_t high = shift == 0 ? 0 : mantissa >> (64 - shift);
  const int64_t sign = bits >> 63 != 0 ? -1 : 1;
  const auto grow = [&](int word, uint64_t digit) {
    if (digit != 0) add(place / 32 + word, sign * static_cast<int64_t>(digit));
  };
  grow(0, low & 0xffffffff);
  grow(1, low >> 32);
  grow(2, high);
}

// Of a sum that is not negative; a function of the sum alone.
TESSERA_EXACT_FN double RoundedSum(const int64_t* words) {
  if (words[kSumNaN] != 0) return std::numeric_limits<double>::quiet_NaN();
  if (words[kSumInfinite] != 0) return std::numeric_limits<double>::infinity();
  int64_t digits[kSumDigits];
  int64_t carry = 0;
  for (int i = 0; i < kSumDigits; ++i) {
    const int64_t all = words[i] + carry;
    digits[i] = all & 0xffffffff;
    carry = all >> 32;
  }
  double sum = 0;
  for (int i = kSumDigits - 1; i >= 0; --i) {
    if (digits[i] != 0) sum += ldexp(static_cast<double>(digits[i]), 32 * i - kSumBits);
  }
  return sum;
}

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_EXACT_SUM_H_
