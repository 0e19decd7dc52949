// SPDX-License-Identifier: Apache-2.0
// Sorting of keys with their values on the GPU, stable: pairs of equal keys stay in order.
//
//   const Workspace scratch(SortPairsScratch(n));
//   SortPairs("index_add",
//             {keys, sorted_keys, values, sorted_values, n, bits, scratch.data()});
//
// Declared in plain C++, so that what a sort needs is known without CUDA too.
#ifndef TESSERA_CORE_CUDA_SORT_PAIRS_H_
#define TESSERA_CORE_CUDA_SORT_PAIRS_H_

#include <cstddef>
#include <cstdint>

namespace tessera::cuda {

// Bytes that sorting n pairs may take: CUB's radix sort keeps another copy of keys and values, 1
// KiB per block of (always more than) 2048 pairs and pass, and 1 KiB of counts per pass and 2^30
// pairs.
inline size_t SortPairsScratch(int64_t n) {
  return static_cast<size_t>(8 * n + (n / 2048 + 1) * 1024 + (int64_t{32} << 10));
}

// Arrays of n on the active GPU, none overlapping another.
struct SortPairsArgs {
  const uint32_t* keys;
  uint32_t* sorted_keys;
  const uint32_t* values;
  uint32_t* sorted_values;
  int n;
  int bits;       // every key is below 2^bits
  void* scratch;  // SortPairsScratch(n) bytes
};

// On CurrentStream(). Throws Error(operation, ...) where CUDA refuses.
void SortPairs(const char* operation, const SortPairsArgs& args);

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_SORT_PAIRS_H_
