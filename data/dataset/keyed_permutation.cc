// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/keyed_permutation.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace tessera::data {
namespace {

// The finalizer of SplitMix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

KeyedPermutation::KeyedPermutation(int64_t n, uint64_t seed, uint64_t epoch) : n_(n) {
  TESSERA_CHECK(n >= 1, "KeyedPermutation", "n is ", n);
  // Halves of less than four bits would mix too little to make all permutations equally likely.
  const int bits = std::max(8, static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1))));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
  uint64_t key = Mix(Mix(seed) ^ epoch);
  for (uint64_t& round_key : round_keys_) round_key = key = Mix(key);
}

uint64_t KeyedPermutation::Pass(uint64_t x) const {
  const uint64_t low_mask = (uint64_t{1} << low_bits_) - 1;
  const uint64_t high_mask = (uint64_t{1} << high_bits_) - 1;
  uint64_t low = x & low_mask;
  uint64_t high = x >> low_bits_;
  for (int round = 0; round < kRounds; round += 2) {
    high ^= (Mix(low ^ round_keys_[round]) >> 7) & high_mask;
    low ^= (Mix(high ^ round_keys_[round + 1]) >> 7) & low_mask;
  }
  return (high << low_bits_) | low;
}

int64_t KeyedPermutation::operator()(int64_t i) const {
  TESSERA_CHECK(i >= 0 && i < n_, "KeyedPermutation", "position ", i, " of ", n_);
  auto x = static_cast<uint64_t>(i);
  do {
    x = Pass(x);
  } while (x >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(x);
}

}  // namespace tessera::data
