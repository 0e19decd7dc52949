// SPDX-License-Identifier: Apache-2.0
#include "corpus/dedup/minhash_kernel.h"

#include <cstdint>

namespace tessera::corpus::TESSERA_ISA {
namespace {

#if TESSERA_ISA_AVX512
constexpr int kBytes = 64;
#elif TESSERA_ISA_AVX2
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
typedef uint32_t Lanes __attribute__((vector_size(kBytes)));  // NOLINT: a vector has no using
typedef uint32_t Unaligned __attribute__((vector_size(kBytes), aligned(4)));  // NOLINT
constexpr int kLanes = kBytes / 4;

// As many vectors at once as stay in registers, with a and b.
constexpr int kVectors = 4;

}  // namespace

void MinHashBlock(const uint64_t* shingles, int64_t count, const uint32_t* a, const uint32_t* b,
                  uint32_t* least) {
  for (int first = 0; first < 64; first += kVectors * kLanes) {
    Lanes a_v[kVectors], b_v[kVectors], least_v[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      a_v[v] = *reinterpret_cast<const Unaligned*>(a + first + v * kLanes);
      b_v[v] = *reinterpret_cast<const Unaligned*>(b + first + v * kLanes);
      least_v[v] = Lanes{} - 1;
    }
    for (int64_t i = 0; i < count; ++i) {
      const auto x = static_cast<uint32_t>(shingles[i] >> 32);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const Lanes value = a_v[v] * x + b_v[v];
        least_v[v] = value < least_v[v] ? value : least_v[v];
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      *reinterpret_cast<Unaligned*>(least + first + v * kLanes) = least_v[v];
    }
  }
}

}  // namespace tessera::corpus::TESSERA_ISA
