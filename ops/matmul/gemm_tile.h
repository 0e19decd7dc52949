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
  for (int64_t k = 0; k < depth; ++k) {
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
