// SPDX-License-Identifier: Apache-2.0
// minhash_kernel.cc, once per instruction set.
#ifndef TESSERA_CORPUS_DEDUP_MINHASH_KERNEL_H_
#define TESSERA_CORPUS_DEDUP_MINHASH_KERNEL_H_

#include <cstdint>

#include "core/cpu/every_isa.h"

namespace tessera::corpus {

// least[p] = min over shingles of a[p] * (shingle >> 32) + b[p], for 64 permutations; 2^32 - 1 of
// none. Writes "=".
using MinHashKernel = void(const uint64_t* shingles, int64_t count, const uint32_t* a,
                           const uint32_t* b, uint32_t* least);

TESSERA_DECLARE_FOR_EVERY_ISA(MinHashKernel MinHashBlock;)

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_DEDUP_MINHASH_KERNEL_H_
