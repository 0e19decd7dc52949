// SPDX-License-Identifier: Apache-2.0
// The tile product, and rows of C on their way in and out (gemm_kernel.h).
//
// For sources compiled by tessera_isa_library; see core/cpu/simd.h.
#ifndef TESSERA_OPS_MATMUL_GEMM_TILE_H_
#define TESSERA_OPS_MATMUL_GEMM_TILE_H_

#include "core/cpu/simd.h"
#include "ops/matmul/gemm_kernel.h"
#include "ops/matmul/gemm_vector.h"

namespace tessera::TESSERA_ISA {

#if defined(TESSERA_ISA_AVX2)
// Where the core's other hardware thread is busy, this one gets half of the instructions that a
// cycle takes: 3 on Zen 3. A step is 19, whose 12 products take 6 cycles, and a loop over single
// steps adds 4 to it. These are kTileSteps steps of a whole tile without them; in assembly, since
// the sums and operands of a step fill all 16 registers, and compilers spill some for more steps.
constexpr int kTileSteps = 4;
static_assert(kTileRows == 4 && kTileVectors == 3 && kLanes == 8);
#define TESSERA_TILE_ROW(step, row)                         \
  "vbroadcastss 16*" #step "+4*" #row "(%[a]), %%ymm15\n\t" \
  "vfmadd231ps %%ymm12, %%ymm15, %[s" #row "0]\n\t"         \
  "vfmadd231ps %%ymm13, %%ymm15, %[s" #row "1]\n\t"         \
  "vfmadd231ps %%ymm14, %%ymm15, %[s" #row "2]\n\t"
#define TESSERA_TILE_STEP(step)                                                                    \
  "vmovups 96*" #step "(%[b]), %%ymm12\n\t"                                                        \
  "vmovups 96*" #step "+32(%[b]), %%ymm13\n\t"                                                     \
  "vmovups 96*" #step "+64(%[b]), %%ymm14\n\t" TESSERA_TILE_ROW(step, 0) TESSERA_TILE_ROW(step, 1) \
      TESSERA_TILE_ROW(step, 2) TESSERA_TILE_ROW(step, 3)
#define TESSERA_TILE_SUMS(row) \
  [s##row##0] "+x"(sum[row][0].v), [s##row##1] "+x"(sum[row][1].v), [s##row##2] "+x"(sum[row][2].v)
TESSERA_SIMD void AddTileSteps(const float* a, const float* b, VecF (&sum)[4][3]) {
  struct Factors {
    float of[kTileSteps * kTileRows];
  };
  struct Columns {
    float of[kTileSteps * kTileVectors * kLanes];
  };
  __asm__(TESSERA_TILE_STEP(0) TESSERA_TILE_STEP(1) TESSERA_TILE_STEP(2) TESSERA_TILE_STEP(3)
          : TESSERA_TILE_SUMS(0), TESSERA_TILE_SUMS(1), TESSERA_TILE_SUMS(2), TESSERA_TILE_SUMS(3)
          : [a] "r"(a), [b] "r"(b), "m"(*reinterpret_cast<const Factors*>(a)),
            "m"(*reinterpret_cast<const Columns*>(b))
          : "xmm12", "xmm13", "xmm14", "xmm15");
}
#undef TESSERA_TILE_ROW
#undef TESSERA_TILE_STEP
#undef TESSERA_TILE_SUMS
#endif

// The first `kHeight` rows of a tile. `Sum` is Products or PairProducts. A line of memory from
// `next` on is fetched at each step where `kFetches`.
template <int kHeight, typename E, typename Sum, bool kFetches = false>
TESSERA_SIMD void RowsOfTile(int64_t depth, const E* a, const E* b, E* c, int64_t c_row_stride,
                             E alpha, bool accumulate, const E* next = nullptr) {
  using V = typename VectorOf<E>::Type;
  constexpr int64_t kWidth = VectorOf<E>::kWidth;
  constexpr int64_t kLine = 64 / sizeof(E);
  // C comes from memory in most products: it is fetched while the sums are taken.
#pragma GCC unroll 8
  for (int i = 0; i < kHeight; ++i) {
    const E* const row = c + i * c_row_stride;
#pragma GCC unroll 4
    for (int64_t j = 0; j < kTileVectors * kWidth; j += kLine) __builtin_prefetch(row + j, 1, 3);
    __builtin_prefetch(row + kTileVectors * kWidth - 1, 1, 3);
  }
  V sum[kHeight][kTileVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kHeight; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) sum[i][j] = Broadcast(E{0});
  }
  int64_t k = 0;
#if defined(TESSERA_ISA_AVX2)
  if constexpr (kHeight == kTileRows && sizeof(E) == sizeof(float)) {
    for (; k + kTileSteps <= depth; k += kTileSteps) {
#pragma GCC unroll 4
      for (int step = 0; kFetches && step < kTileSteps; ++step, next += kLine) {
        __builtin_prefetch(next, 0, 2);
      }
      AddTileSteps(a, b, sum);
      a += kTileSteps * kTileRows;
      b += kTileSteps * kTileVectors * kWidth;
    }
  }
#endif
  for (; k < depth; ++k) {
    V row[kTileVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) row[j] = Load(b + j * kWidth);
    if constexpr (kFetches) {
      __builtin_prefetch(next, 0, 2);
      next += kLine;
    }
    const RowFactors<E> factors(a);
#pragma GCC unroll 8
    for (int i = 0; i < kHeight; ++i) {
      const V factor = factors.At(i);
#pragma GCC unroll 4
      for (int j = 0; j < kTileVectors; ++j) sum[i][j] = Sum::Add(factor, row[j], sum[i][j]);
    }
    a += kTileRows;
    b += kTileVectors * kWidth;
  }
  const V scale = Broadcast(alpha);
#pragma GCC unroll 8
  for (int i = 0; i < kHeight; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) {
      E* to = c + i * c_row_stride + j * kWidth;
      Store(to, accumulate ? Fma(scale, sum[i][j], Load(to)) : scale * sum[i][j]);
    }
  }
}

template <typename E, typename Sum>
void Tile(int64_t depth, const E* a, const E* b, E* c, int64_t c_row_stride, E alpha,
          bool accumulate) {
  RowsOfTile<kTileRows, E, Sum>(depth, a, b, c, c_row_stride, alpha, accumulate);
}

// `height` <= kTileRows rows.
template <int kHeight = kTileRows>
void RowsTile(int64_t height, int64_t depth, const float* a, const float* b, float* c,
              int64_t c_row_stride, float alpha, bool accumulate, const float* next) {
  if constexpr (kHeight > 0) {
    if (height < kHeight) {
      RowsTile<kHeight - 1>(height, depth, a, b, c, c_row_stride, alpha, accumulate, next);
    } else {
      RowsOfTile<kHeight, float, Products, true>(depth, a, b, c, c_row_stride, alpha, accumulate,
                                                 next);
    }
  }
}

template <typename E>
void FinishRow(int64_t n, const E* s, E* c, E alpha, bool accumulate) {
  using V = typename VectorOf<E>::Type;
  constexpr int64_t kWidth = VectorOf<E>::kWidth;
  const V scale = Broadcast(alpha);
  for (int64_t j = 0; j < n; j += kWidth) {
    const V sum = LoadN(s + j, n - j);
    StoreN(c + j, accumulate ? Fma(scale, sum, LoadN(c + j, n - j)) : scale * sum, n - j);
  }
}

template <typename E>
void LoadRow(GemmElement element, const void* src, int64_t n, E* dst) {
  Dispatch(
      element, src, E{}, [&](const auto* from) __attribute__((always_inline)) {
        for (int64_t j = 0; j < n; j += VectorOf<E>::kWidth)
          StoreN(dst + j, LoadN(from + j, n - j), n - j);
      });
}

template <typename T>
TESSERA_SIMD T* Writable(const T* p) {
  return const_cast<T*>(p);
}

template <typename E>
void StoreRow(GemmElement element, const E* src, int64_t n, void* dst) {
  Dispatch(
      element, dst, E{}, [&](const auto* to) __attribute__((always_inline)) {
        for (int64_t j = 0; j < n; j += VectorOf<E>::kWidth) {
          StoreN(Writable(to) + j, LoadN(src + j, n - j), n - j);
        }
      });
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_MATMUL_GEMM_TILE_H_
