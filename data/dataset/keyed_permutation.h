// SPDX-License-Identifier: Apache-2.0
// A permutation of 0 ... n-1 that is computed, not stored: constant time and memory.
//
//   KeyedPermutation order(/*n=*/1000000, /*seed=*/0, /*epoch=*/3);
//   int64_t sample = order(i);   // i in [0, n); each result once
//
// A Feistel network of eight rounds over the least 2^b >= n numbers (b >= 8), whose round function
// mixes the key, the round and one half; results that are not below n are sent through again until
// they are (J. Black, P. Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002), which
// takes less than two passes on average, or 256 / n below 128. It shuffles; it is no cipher.
#ifndef TESSERA_DATA_DATASET_KEYED_PERMUTATION_H_
#define TESSERA_DATA_DATASET_KEYED_PERMUTATION_H_

#include <cstdint>

namespace tessera::data {

class KeyedPermutation {
 public:
  // n >= 1 (throws Error otherwise). The same arguments give the same permutation on any machine.
  KeyedPermutation(int64_t n, uint64_t seed, uint64_t epoch);

  // Throws Error unless 0 <= i < size().
  int64_t operator()(int64_t i) const;

  int64_t size() const { return n_; }

 private:
  static constexpr int kRounds = 8;
  uint64_t Pass(uint64_t x) const;

  int64_t n_;
  int low_bits_;   // of the halves that the rounds work on in turn
  int high_bits_;  // low_bits_ or one more
  uint64_t round_keys_[kRounds];
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_KEYED_PERMUTATION_H_
