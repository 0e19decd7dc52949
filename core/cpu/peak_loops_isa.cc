// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/peak_loops.h"
#include "core/cpu/simd.h"

// A vector's register in what __asm__ says of its operands.
#if defined(__aarch64__)
#define TESSERA_VECTOR_REGISTER "+w"
#else
#define TESSERA_VECTOR_REGISTER "+x"
#endif

#if defined(__aarch64__)
#define TESSERA_CHANGES(v) __asm__ volatile("" : "+w"((v).v))
#else
#define TESSERA_CHANGES(v) __asm__ volatile("" : "+x"((v).v))
#endif

namespace tessera::TESSERA_ISA {
namespace {

// More chains than two units need to hide the five cycles of a product at most.
constexpr int64_t kChains = 12;

double Products(int64_t rounds) {
  VecF sums[kChains];
#pragma GCC unroll 12
  for (int64_t c = 0; c < kChains; ++c) sums[c] = Set(static_cast<float>(c));
  VecF a = Set(0.5f);
  VecF b = Set(0.25f);
  for (int64_t i = 0; i < rounds; ++i) {
    // As far as the compiler knows the factors change, so that it cannot do without a product.
    __asm__ volatile("" : TESSERA_VECTOR_REGISTER(a.v), TESSERA_VECTOR_REGISTER(b.v));
#pragma GCC unroll 12
    for (int64_t c = 0; c < kChains; ++c) sums[c] = Fma(sums[c], a, b);
  }
  float lanes[kLanes];
  double all = 0;
  for (int64_t c = 0; c < kChains; ++c) {
    Store(lanes, sums[c]);
    all += static_cast<double>(lanes[0]);
  }
  return all;
}

float Read(const float* from, int64_t n) {
  constexpr int64_t kVectors = 8;
  VecF sums[kVectors];
#pragma GCC unroll 8
  for (int64_t v = 0; v < kVectors; ++v) sums[v] = Zero();
  for (int64_t i = 0; i + kVectors * kLanes <= n; i += kVectors * kLanes) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v) sums[v].v += Load(from + i + v * kLanes).v;
  }
  float lanes[kLanes];
  float all = 0;
  for (int64_t v = 0; v < kVectors; ++v) {
    Store(lanes, sums[v]);
    all += lanes[0];
  }
  return all;
}

void Write(float* to, int64_t n) {
  VecF value = Set(1.0f);
  for (int64_t i = 0; i + 4 * kLanes <= n; i += 4 * kLanes) {
    __asm__ volatile("" : TESSERA_VECTOR_REGISTER(value.v));  // no call of memset instead
#pragma GCC unroll 4
    for (int64_t v = 0; v < 4; ++v) Store(to + i + v * kLanes, value);
  }
}

}  // namespace

extern const PeakLoops kPeakLoops;
const PeakLoops kPeakLoops = {
    .products = {Products, kChains* kLanes * 2}, .read = Read, .write = Write};

}  // namespace tessera::TESSERA_ISA

#undef TESSERA_CHANGES
