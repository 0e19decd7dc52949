// SPDX-License-Identifier: Apache-2.0
// Products of a few rows of A, which read B where it is, once: the memory is what they wait for.
//
//   SkinnyAcross(rows, depth, a, b, width, sums);   // b.width_stride == 1
//   SkinnyAlong(rows, depth, a, b, width, sums);    // b.depth_stride == 1, float
//
// Both give the chains that gemm_kernel.h states for `skinny`. Included by gemm_isa.cc only.
#ifndef TESSERA_OPS_MATMUL_GEMM_ROWS_H_
#define TESSERA_OPS_MATMUL_GEMM_ROWS_H_

#include "core/cpu/simd.h"
#include "ops/matmul/gemm_kernel.h"
#include "ops/matmul/gemm_pack.h"
#include "ops/matmul/gemm_vector.h"

namespace tessera::TESSERA_ISA {

// ---- Columns side by side -----------------------------------------------------------------------

// What only processors of before 2013 run counts by its size.
#if defined(TESSERA_ISA_BASELINE)
constexpr int kUnrolled = 1;
#else
constexpr int kUnrolled = 8;
#endif

// Rows of B where they lie, in the order in which they are packed: row s is row s ^ flip, or zeros
// where there is none.
template <typename T>
struct RowsOf {
  const T* data;
  int64_t stride;
  int64_t depth;
  int64_t flip;

  using Sum = Products;
  static constexpr bool kUnrolls = sizeof(T) != sizeof(double);
  int64_t whole() const { return depth; }
  int64_t count() const { return depth + (depth & flip); }
  TESSERA_INLINE bool Has(int64_t s) const { return (s ^ flip) < depth; }
  TESSERA_INLINE auto Row(int64_t s, int64_t j) const { return Load(At(s, j)); }
  TESSERA_INLINE auto RowN(int64_t s, int64_t j, int64_t n) const { return LoadN(At(s, j), n); }
  TESSERA_INLINE void Fetch(int64_t s, int64_t j) const { __builtin_prefetch(At(s, j)); }
  TESSERA_INLINE const T* At(int64_t s, int64_t j) const { return data + (s ^ flip) * stride + j; }
};

// sums[i] += a[s][i] * b[s] over the first `whole` columns, whole vectors, for the kStep rows s
// from `k` on in order.
template <int kRows, int kStep, typename Rows, typename E>
TESSERA_SIMD void AcrossStep(const E* a, const Rows& b, int64_t k, int64_t whole, int64_t width,
                             E* sums) {
  using V = typename VectorOf<E>::Type;
  a += k * kRows;
  for (int64_t j = 0; j < whole; j += VectorOf<E>::kWidth) {
    V row[kStep];
#pragma GCC unroll kUnrolled
    for (int s = 0; s < kStep; ++s) {
      row[s] = b.Row(k + s, j);
      b.Fetch(k + s + 2 * kStep, j);
    }
#pragma GCC unroll kUnrolled
    for (int i = 0; i < kRows; ++i) {
      V sum = Load(sums + i * width + j);
#pragma GCC unroll kUnrolled
      for (int s = 0; s < kStep; ++s) {
        sum = Rows::Sum::Add(Broadcast(a[s * kRows + i]), row[s], sum);
      }
      Store(sums + i * width + j, sum);
    }
  }
}

// The same of what is left: rows [k, end), columns from `j` on.
template <typename Rows, typename E>
__attribute__((noinline)) void AcrossRest(int64_t rows, const E* a, const Rows& b, int64_t k,
                                          int64_t end, int64_t j, int64_t width, E* sums) {
  using V = typename VectorOf<E>::Type;
  for (; k < end; ++k) {
    for (int64_t x = j; x < width; x += VectorOf<E>::kWidth) {
      const V row = b.Has(k) ? b.RowN(k, x, width - x) : Broadcast(E{0});
#pragma GCC unroll 1
      for (int64_t i = 0; i < rows; ++i) {
        E* const to = sums + i * width + x;
        const V sum = LoadN(to, width - x);
        StoreN(to, Rows::Sum::Add(Broadcast(a[k * rows + i]), row, sum), width - x);
      }
    }
  }
}

// The chain of each element runs over k alone, so that rows of B stream through once, a few at a
// time, while the sums stay in the first-level cache.
template <int kRows, typename Rows, typename E>
TESSERA_SIMD int64_t Across(const E* a, const Rows& b, int64_t whole, int64_t width, E* sums) {
  int64_t k = 0;
  for (; k + 4 <= b.whole(); k += 4) AcrossStep<kRows, 4>(a, b, k, whole, width, sums);
  return k;
}

template <typename Rows, typename E>
TESSERA_SIMD void AcrossRows(int64_t rows, const E* a, const Rows& b, int64_t width, E* sums) {
  for (int64_t i = 0; i < rows * width; ++i) sums[i] = E{0};
  int64_t k = 0;
  if constexpr (Rows::kUnrolls) {
    const int64_t whole = width / VectorOf<E>::kWidth * VectorOf<E>::kWidth;
    k = rows == 1   ? Across<1>(a, b, whole, width, sums)
        : rows == 4 ? Across<4>(a, b, whole, width, sums)
                    : Across<8>(a, b, whole, width, sums);
    // Columns beyond the whole vectors; what follows is rows beyond the whole steps.
    if (whole < width) AcrossRest(rows, a, b, 0, k, whole, width, sums);
  }
  AcrossRest(rows, a, b, k, b.count(), 0, width, sums);
}

template <typename E>
void SkinnyAcross(int64_t rows, int64_t depth, const E* a, const GemmView& b, int64_t width,
                  E* sums) {
  Dispatch(
      b.element, b.data, E{}, [&]<typename T>(const T* data) __attribute__((always_inline)) {
        const RowsOf<T> across{data, b.depth_stride, depth, FlipOf(b.element)};
        AcrossRows(rows, a, across, width, sums);
      });
}

// ---- Columns one behind the other ---------------------------------------------------------------

// sums[i] += a[k][i] * b[k] over `depth` rows of a panel.
template <int kRows>
__attribute__((noinline)) void AddProducts(int64_t depth, const float* a, int64_t a_stride,
                                           const float* b, VecF (*sums)[kTileVectors]) {
  VecF sum[kRows][kTileVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) sum[i][j] = sums[i][j];
  }
#pragma GCC unroll 2
  for (int64_t k = 0; k < depth; ++k) {
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) {
      const VecF columns = Load(b + (k * kTileVectors + j) * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        sum[i][j] = Fma(Set(a[k * a_stride + i]), columns, sum[i][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) sums[i][j] = sum[i][j];
  }
}

// One row, 2 * kLanes indices of k of a whole panel: squares of pairs are used where they were
// transposed, and what is fetched ahead is the next panel.
TESSERA_SIMD void AddSquares(const float* a, const Bf16* b, int64_t ws, VecF* sums) {
#pragma GCC unroll 1
  for (int v = 0; v < kTileVectors; ++v) {
    VecF square[kLanes];
#pragma GCC unroll 16
    for (int64_t w = 0; w < kLanes; ++w) {
      const Bf16* const from = b + (v * kLanes + w) * ws;
      square[w] = BitsAsFloat(Load(reinterpret_cast<const int32_t*>(from)));
      __builtin_prefetch(from + kTileVectors * kLanes * ws, 0, 2);
      __builtin_prefetch(from + 2 * kLanes);
    }
    TransposeSquare(square);
    VecF sum = sums[v];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) {
      const VecI bits = BitsAsInt(square[i]);
      const VecI odd = bits & SetI(static_cast<int32_t>(0xffff0000u));
      sum = Fma(Set(a[2 * i]), BitsAsFloat(odd), sum);
      sum = Fma(Set(a[2 * i + 1]), BitsAsFloat(ShiftLeft<16>(bits)), sum);
    }
    sums[v] = sum;
  }
}

// A panel at a time: a little of it is transposed into the first-level cache and used there.
TESSERA_SIMD void SkinnyAlong(int64_t rows, int64_t depth, const float* a, const GemmView& b,
                              int64_t width, float* sums) {
  constexpr int64_t kPanel = kTileVectors * kLanes;
  constexpr int64_t kDeep = 64;
  const int64_t flip = FlipOf(b.element);
  alignas(64) float panel[kDeep * kPanel];
  Dispatch(
      b.element, b.data, 0.0f, [&](const auto* data) __attribute__((always_inline)) {
        for (int64_t j = 0; j < width; j += kPanel) {
          const int64_t count = width - j < kPanel ? width - j : kPanel;
          VecF sum[kSkinnyRows][kTileVectors];
          for (auto& row : sum) {
            for (VecF& s : row) s = Zero();
          }
          int64_t k = 0;
          if constexpr (kIsBf16<decltype(*data)>) {
            const bool squares = rows == 1 && flip == 1 && count == kPanel;
            for (; squares && k + 2 * kLanes <= depth; k += 2 * kLanes) {
              AddSquares(a + k, data + j * b.width_stride + k, b.width_stride, sum[0]);
            }
          }
          for (; k < depth; k += kDeep) {
            const int64_t left = depth - k < kDeep ? depth - k : kDeep;
            PackColumns<kPanel>(data + j * b.width_stride + k, b.width_stride, count, left, flip,
                                panel);
            const int64_t deep = left + (left & flip);
            const float* const factors = a + k * rows;
            if (rows == 1) {
              AddProducts<1>(deep, factors, 1, panel, sum);
            } else if (rows == 4) {
              AddProducts<4>(deep, factors, 4, panel, sum);
            } else {
              for (int64_t i = 0; i < kSkinnyRows; i += kTileRows) {
                AddProducts<kTileRows>(deep, factors + i, kSkinnyRows, panel, sum + i);
              }
            }
          }
          for (int64_t i = 0; i < rows; ++i) {
            for (int v = 0; v < kTileVectors; ++v) {
              StoreN(sums + i * width + j + v * kLanes, sum[i][v], count - v * kLanes);
            }
          }
        }
      });
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_MATMUL_GEMM_ROWS_H_
