// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "core/cpu/peak_loops.h"
#include "core/cpu/simd.h"

namespace tessera::TESSERA_ISA {
namespace {

constexpr int64_t kChains = 12;

double PairProducts(int64_t rounds) {
  VecF sums[kChains];
#pragma GCC unroll 12
  for (int64_t c = 0; c < kChains; ++c) sums[c] = Set(static_cast<float>(c));
  VecF a = Set(0.5f);
  for (int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+x"(a.v));
    const __m512bh pairs = (__m512bh)a.v;
#pragma GCC unroll 12
    for (int64_t c = 0; c < kChains; ++c) {
      sums[c].v = reinterpret_cast<RawF>(
          _mm512_dpbf16_ps(reinterpret_cast<__m512>(sums[c].v), pairs, pairs));
    }
  }
  float lanes[kLanes];
  double all = 0;
  for (int64_t c = 0; c < kChains; ++c) {
    Store(lanes, sums[c]);
    all += static_cast<double>(lanes[0]);
  }
  return all;
}

}  // namespace

extern const ProductLoop kPairProducts;
const ProductLoop kPairProducts = {PairProducts, kChains* kLanes * 4};

}  // namespace tessera::TESSERA_ISA
