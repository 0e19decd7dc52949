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

// sums[i] += a[s][i] * b[s] over the columns, for s = 0 .. kStep-1 in order.
template <int kRows, int kStep, typename T, typename E>
TESSERA_SIMD void AcrossStep(const E* a, const T* b, int64_t b_row_stride, int64_t width, E* sums) {
  using V = typename VectorOf<E>::Type;
  constexpr int64_t kWidth = VectorOf<E>::kWidth;
  int64_t j = 0;
  for (; j + kWidth <= width; j += kWidth) {
    V row[kStep];
#pragma GCC unroll kUnrolled
    for (int s = 0; s < kStep; ++s) {
      const T* const from = b + s * b_row_stride + j;
      row[s] = Load(from);
      __builtin_prefetch(from + 2 * kStep * b_row_stride);
    }
#pragma GCC unroll kUnrolled
    for (int i = 0; i < kRows; ++i) {
      V sum = Load(sums + i * width + j);
#pragma GCC unroll kUnrolled
      for (int s = 0; s < kStep; ++s) sum = Fma(Broadcast(a[s * kRows + i]), row[s], sum);
      Store(sums + i * width + j, sum);
    }
  }
  if (j == width) return;
#pragma GCC unroll 1
  for (int s = 0; s < kStep; ++s) {
    const V row = LoadN(b + s * b_row_stride + j, width - j);
#pragma GCC unroll 1
    for (int i = 0; i < kRows; ++i) {
      const V sum = LoadN(sums + i * width + j, width - j);
      StoreN(sums + i * width + j, Fma(Broadcast(a[s * kRows + i]), row, sum), width - j);
    }
  }
}

// The chain of each element runs over k alone, so that rows of B stream through once, a few at a
// time, while the sums stay in the first-level cache.
template <int kRows, typename T, typename E>
TESSERA_SIMD void Across(int64_t depth, const E* a, const T* b, int64_t b_row_stride, int64_t width,
                         E* sums) {
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    AcrossStep<kRows, 4>(a + k * kRows, b + k * b_row_stride, b_row_stride, width, sums);
  }
#pragma GCC unroll 1
  for (; k < depth; ++k) {
    AcrossStep<kRows, 1>(a + k * kRows, b + k * b_row_stride, b_row_stride, width, sums);
  }
}

template <typename E>
void SkinnyAcross(int64_t rows, int64_t depth, const E* a, const GemmView& b, int64_t width,
                  E* sums) {
  for (int64_t i = 0; i < rows * width; ++i) sums[i] = E{0};
  Dispatch(
      b.element, b.data, E{}, [&](const auto* data) __attribute__((always_inline)) {
        switch (rows) {
          case 1:
            return Across<1>(depth, a, data, b.depth_stride, width, sums);
          case 4:
            return Across<4>(depth, a, data, b.depth_stride, width, sums);
          default:
            return Across<8>(depth, a, data, b.depth_stride, width, sums);
        }
      });
}

// ---- Columns one behind the other ---------------------------------------------------------------

// sums[i] += a[k][i] * b[k] over `depth` rows of a panel.
template <int kRows>
TESSERA_SIMD void AddProducts(int64_t depth, const float* a, int64_t a_stride, const float* b,
                              VecF (*sums)[kTileVectors]) {
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

// A panel at a time: a little of it is transposed into the first-level cache and used there.
TESSERA_SIMD void SkinnyAlong(int64_t rows, int64_t depth, const float* a, const GemmView& b,
                              int64_t width, float* sums) {
  constexpr int64_t kPanel = kTileVectors * kLanes;
  constexpr int64_t kDeep = 64;
  alignas(64) float panel[kDeep * kPanel];
  Dispatch(
      b.element, b.data, 0.0f, [&](const auto* data) __attribute__((always_inline)) {
        for (int64_t j = 0; j < width; j += kPanel) {
          const int64_t count = width - j < kPanel ? width - j : kPanel;
          VecF sum[kSkinnyRows][kTileVectors];
          for (auto& row : sum) {
            for (VecF& s : row) s = Zero();
          }
          for (int64_t k = 0; k < depth; k += kDeep) {
            const int64_t deep = depth - k < kDeep ? depth - k : kDeep;
            PackColumns<kPanel>(data + j * b.width_stride + k, b.width_stride, count, deep, panel);
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
