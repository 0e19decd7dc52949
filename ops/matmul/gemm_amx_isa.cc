// SPDX-License-Identifier: Apache-2.0
// Products of bfloat16 by bfloat16 with AMX's tiles, packed by AVX-512.
#include "core/cpu/simd.h"
#include "core/cpu/simd_transpose.h"
#include "ops/matmul/gemm_amx.h"
#include "ops/matmul/gemm_kernel.h"
#include "ops/matmul/gemm_pairs.h"
#include "ops/matmul/gemm_tile.h"

namespace tessera::TESSERA_ISA {
namespace {

// The compilers' intrinsics take a tile's number as a literal, and GCC 12's do not say what memory
// they read.
struct Tiles {
  template <int kTile>
  TESSERA_SIMD void Zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  TESSERA_SIMD void Load(const float* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile)
                     : "memory");
  }
  template <int kTile>
  TESSERA_SIMD void Store(float* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile)
                     : "memory");
  }
  template <int kC, int kA, int kB>
  TESSERA_SIMD void Dot() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
  TESSERA_SIMD void Finish(int64_t n, const float* s, float* c, float alpha, bool accumulate) {
    FinishRow(n, s, c, alpha, accumulate);
  }
};

// All tiles of 16 rows of 64 bytes.
struct Configuration {
  uint8_t palette = 1;
  uint8_t rest[15] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
alignas(64) constexpr Configuration kConfiguration;

void Enter() { __asm__ volatile("ldtilecfg %0" ::"m"(kConfiguration)); }
// With empty tiles a thread is switched for as little as any other.
void Leave() { __asm__ volatile("tilerelease"); }

// A square of `width` <= 16 columns and `depth` <= 32 indices of k, zeros beyond: a row per column
// if k is contiguous, else a row per pair.
__attribute__((noinline)) void LoadSquare(const Bf16* src, int64_t ws, int64_t ds, int64_t width,
                                          int64_t depth, VecF (&rows)[kLanes]) {
#pragma GCC unroll 1
  for (int64_t i = 0; i < kLanes; ++i) {
    if (ds == 1) {
      const Bf16* const from = src + i * ws;
      rows[i] = i < width ? PairsAlong(from, depth) : Zero();
      __builtin_prefetch(from + kAmxSide * ws, 0, 2);
      __builtin_prefetch(from + 2 * kLanes);
      continue;
    }
    const Bf16* const even = src + 2 * i * ds;
    const Bf16* const odd = 2 * i + 1 < depth ? even + ds : nullptr;
    if (2 * i >= depth) {
      rows[i] = Zero();
    } else if (ws == 1) {
      rows[i] = PairsAcross(even, odd, width);
    } else {
      float pairs[kLanes];
      StorePairs(even, odd, ws, width, kLanes, pairs);
      rows[i] = Load(pairs);
    }
  }
}

// A panel's rows lie `row` elements apart, its squares `half`; they are columns if `along`, else
// pairs.
__attribute__((noinline)) void Pack(const GemmView& view, int64_t width, int64_t depth, bool along,
                                    int64_t row, int64_t half, float* dst) {
  const auto* const src = static_cast<const Bf16*>(view.data);
  const int64_t ws = view.width_stride, ds = view.depth_stride;
  const int64_t deep = (depth + 2 * kAmxPairs - 1) / (2 * kAmxPairs);
  const int64_t wide = (width + kAmxSide - 1) / kAmxSide * 2;
  // In the order of the memory, so that long strides cost few translations.
  for (int64_t square = 0; square < wide * deep; ++square) {
    const int64_t x = ds == 1 ? square / deep : square % wide;
    const int64_t y = ds == 1 ? square % deep : square / wide;
    const int64_t w = x * kLanes, k = y * 2 * kAmxPairs;
    VecF rows[kLanes];
    LoadSquare(src + w * ws + k * ds, ws, ds, width - w, depth - k, rows);
    if ((ds == 1) != along) TransposeSquare(rows);
    float* const to = dst + (x / 2 * deep + y) * kAmxStep + x % 2 * half;
#pragma GCC unroll 1
    for (int64_t i = 0; i < kLanes; ++i) Store(to + i * row, rows[i]);
  }
}

void PackA(const GemmView& view, int64_t width, int64_t depth, float* dst) {
  Pack(view, width, depth, true, kAmxPairs, kAmxStep / 2, dst);
}
void PackB(const GemmView& view, int64_t width, int64_t depth, float* dst) {
  Pack(view, width, depth, false, kAmxSide, kLanes, dst);
}

}  // namespace

const GemmKernels<float> kGemmPairs = {
    kAmxSide,        kAmxSide,       1,       kAmxPairs,        PackA,
    PackB,           AmxTile<Tiles>, nullptr, FinishRow<float>, LoadRow<float>,
    StoreRow<float>, Enter,          Leave};

}  // namespace tessera::TESSERA_ISA
