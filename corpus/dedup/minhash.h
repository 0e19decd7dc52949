// SPDX-License-Identifier: Apache-2.0
// MinHash (Broder 1997): for each of many permutations of the 32-bit numbers, the least that a set
// holds. Two sets have the same number at a place with the probability of their Jaccard similarity.
//
//   const MinHash hash(128);
//   std::vector<uint32_t> signature(128);
//   hash.Sign(shingles, signature.data());
//
// Permutation p takes a shingle's upper half x to a[p] * x + b[p] modulo 2^32, a[p] odd, both drawn
// from a fixed seed: a signature is the same everywhere.
#ifndef TESSERA_CORPUS_DEDUP_MINHASH_H_
#define TESSERA_CORPUS_DEDUP_MINHASH_H_

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::corpus {

// Permutations come in so many at once.
inline constexpr int kPermutationBlock = 64;

class MinHash {
 public:
  // A multiple of kPermutationBlock.
  explicit MinHash(int64_t permutations);

  int64_t permutations() const { return static_cast<int64_t>(a_.size()); }
  // `signature` takes permutations() numbers; of no shingles all are 2^32 - 1.
  void Sign(std::span<const uint64_t> shingles, uint32_t* signature) const;

 private:
  std::vector<uint32_t> a_;
  std::vector<uint32_t> b_;
};

// How a signature is cut into bands of rows: two documents are compared where a band is the same,
// which finds a pair of similarity s with the probability 1 - (1 - s^rows)^bands.
struct Bands {
  int64_t bands = 0;
  int64_t rows = 0;
};

// The most rows, and thereby the fewest comparisons, with which a pair of this similarity is missed
// once in 200 at most.
Bands BandsFor(double threshold, int64_t permutations);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_DEDUP_MINHASH_H_
