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

// sums[i] += a[k][i] * b[k] over `depth` vectors of columns.
template <int kRows>
__attribute__((noinline)) void AddProducts(int64_t depth, const float* a, const float* b,
                                           VecF* sums) {
  VecF sum[kRows];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) sum[i] = sums[i];
#pragma GCC unroll 2
  for (int64_t k = 0; k < depth; ++k) {
    const VecF columns = Load(b + k * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) sum[i] = Fma(Set(a[k * kRows + i]), columns, sum[i]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) sums[i] = sum[i];
}

// One row of A by kLanes whole columns: squares are used in the registers in which they were
// transposed. Returns up to where it came, as whole lines of memory go.
template <typename T>
TESSERA_SIMD int64_t AddLines(int64_t depth, const float* a, const T* b, int64_t ws, VecF* sum_of) {
  constexpr int64_t kLine = 64 / sizeof(T);
  // Processors fetch ahead within a row, but not from the end of one to the next.
  constexpr int64_t kShort = 8192 / sizeof(T);
  VecF sum = *sum_of;
  int64_t k = 0;
  for (; k + kLine <= depth; k += kLine) {
    if (ws < kShort) {
#pragma GCC unroll 16
      for (int64_t w = 0; w < kLanes; ++w) __builtin_prefetch(b + (w + kLanes) * ws + k);
    }
    constexpr int64_t kStep = kLanes * sizeof(float) / sizeof(T);
#pragma GCC unroll 4
    for (int64_t x = k; x < k + kLine; x += kStep) {
      VecF square[kLanes];
      LoadTransposed(b + x, ws, square);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) {
        if constexpr (kIsBf16<T>) {
          const VecI bits = BitsAsInt(square[i]);
          const VecI odd = bits & SetI(static_cast<int32_t>(0xffff0000u));
          sum = Fma(Set(a[x + 2 * i]), BitsAsFloat(odd), sum);
          sum = Fma(Set(a[x + 2 * i + 1]), BitsAsFloat(ShiftLeft<16>(bits)), sum);
        } else {
          sum = Fma(Set(a[x + i]), square[i], sum);
        }
      }
    }
  }
  *sum_of = sum;
  return k;
}

// A vector of columns at a time. Rows that lie a multiple of 4 KiB apart share the ways of the
// first-level cache, eight for the most part: more of them at a time take twice as long.
TESSERA_SIMD void SkinnyAlong(int64_t rows, int64_t depth, const float* a, const GemmView& b,
                              int64_t width, float* sums) {
  constexpr int64_t kDeep = 64;
  const int64_t flip = FlipOf(b.element);
  const int64_t ws = b.width_stride;
  alignas(64) float columns[kDeep * kLanes];
  Dispatch(
      b.element, b.data, 0.0f, [&]<typename T>(const T* data) __attribute__((always_inline)) {
        for (int64_t j = 0; j < width; j += kLanes) {
          const int64_t count = width - j < kLanes ? width - j : kLanes;
          const T* const from = data + j * ws;
          VecF sum[kSkinnyRows];
          for (VecF& s : sum) s = Zero();
          int64_t k = 0;
          if constexpr (sizeof(T) == sizeof(float) || kIsBf16<T>) {
            const bool squares = rows == 1 && count == kLanes && flip == (kIsBf16<T> ? 1 : 0);
            if (squares) k = AddLines(depth, a, from, ws, sum);
          }
          for (; k < depth; k += kDeep) {
            const int64_t left = depth - k < kDeep ? depth - k : kDeep;
            PackColumns<kLanes>(from + k, ws, count, left, flip, columns);
            const int64_t deep = left + (left & flip);
            const float* const factors = a + k * rows;
            if (rows == 1) {
              AddProducts<1>(deep, factors, columns, sum);
            } else if (rows == 4) {
              AddProducts<4>(deep, factors, columns, sum);
            } else {
              AddProducts<kSkinnyRows>(deep, factors, columns, sum);
            }
          }
          for (int64_t i = 0; i < rows; ++i) StoreN(sums + i * width + j, sum[i], count);
        }
      });
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_MATMUL_GEMM_ROWS_H_
