// SPDX-License-Identifier: Apache-2.0
#include "corpus/dedup/minhash.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "core/cpu/every_isa.h"
#include "core/cpu_isa.h"
#include "corpus/dedup/minhash_kernel.h"
#include "corpus/engine/hash.h"

namespace tessera::corpus {
namespace {

constexpr double kMissed = 1.0 / 200;

constexpr IsaTable<MinHashKernel> kKernel{TESSERA_FOR_EVERY_ISA(MinHashBlock)};

}  // namespace

MinHash::MinHash(int64_t permutations) {
  TESSERA_CHECK(permutations > 0 && permutations % kPermutationBlock == 0, "MinHash", permutations,
                " permutations");
  for (int64_t p = 0; p < permutations; ++p) {
    const uint64_t drawn = Fold(kHashA * static_cast<uint64_t>(2 * p + 1), kHashB);
    a_.push_back(static_cast<uint32_t>(drawn) | 1);
    b_.push_back(static_cast<uint32_t>(drawn >> 32));
  }
}

void MinHash::Sign(std::span<const uint64_t> shingles, uint32_t* signature) const {
  for (size_t p = 0; p < a_.size(); p += kPermutationBlock) {
    kKernel.Select()(shingles.data(), static_cast<int64_t>(shingles.size()), a_.data() + p,
                     b_.data() + p, signature + p);
  }
}

Bands BandsFor(double threshold, int64_t permutations) {
  Bands best = {permutations, 1};
  for (int64_t rows = 1; rows <= permutations; ++rows) {
    const int64_t bands = permutations / rows;
    const double missed = std::pow(1 - std::pow(threshold, static_cast<double>(rows)), bands);
    if (missed <= kMissed) best = {bands, rows};
  }
  return best;
}

}  // namespace tessera::corpus
