// SPDX-License-Identifier: Apache-2.0
// Products of bfloat16 by bfloat16 with VDPBF16PS, which adds a pair of products to each lane: the
// odd one, then the even one, fused, numbers below the normal ones taken as zeros.
#include "core/cpu/simd.h"
#include "core/cpu/simd_transpose.h"
#include "ops/matmul/gemm_kernel.h"
#include "ops/matmul/gemm_pairs.h"
#include "ops/matmul/gemm_rows.h"
#include "ops/matmul/gemm_tile.h"
#include "ops/matmul/gemm_vector.h"

namespace tessera::TESSERA_ISA {
namespace {

constexpr int64_t kPanel = kTileVectors * kLanes;

// kLanes / kColumns squares of kColumns columns, `width` of which there are, one above the other:
// of pairs, from `src` on. rows[i] holds index pair i of the columns of each.
template <int64_t kColumns>
TESSERA_SIMD void LoadSquare(const Bf16* src, int64_t ws, int64_t width, int64_t depth,
                             int64_t ahead, VecF (&rows)[kLanes]) {
  constexpr int64_t kDeep = 2 * kLanes;
  if (width >= kColumns && depth >= kDeep * (kLanes / kColumns)) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) {
      const Bf16* const from = src + i % kColumns * ws + i / kColumns * kDeep;
      rows[i] = Load(reinterpret_cast<const float*>(from));
      __builtin_prefetch(from + ahead * ws, 0, 2);
      __builtin_prefetch(from + kDeep);
    }
  } else {
#pragma GCC unroll 1
    for (int64_t i = 0; i < kLanes; ++i) {
      const int64_t w = i % kColumns, k = i / kColumns * kDeep;
      rows[i] = w < width ? PairsAlong(src + w * ws + k, depth - k) : Zero();
    }
  }
  TransposeSquare(rows);
}

// ---- Packing ------------------------------------------------------------------------------------

// A panel of columns that lie one behind the other.
template <int64_t kWide>
__attribute__((noinline)) void PackAlong(const Bf16* src, int64_t ws, int64_t width, int64_t depth,
                                         float* dst) {
  constexpr int64_t kColumns = kWide < kLanes ? kWide : kLanes;
  constexpr int64_t kPairs = kLanes * (kLanes / kColumns);
  const int64_t pairs = (depth + 1) / 2;
  for (int64_t w = 0; w < kWide; w += kColumns) {
    for (int64_t p0 = 0; p0 < pairs; p0 += kPairs) {
      VecF square[kLanes];
      LoadSquare<kColumns>(src + w * ws + 2 * p0, ws, width - w, depth - 2 * p0, kWide, square);
      float* to = dst + p0 * kWide + w;
#pragma GCC unroll 16
      for (int64_t p = 0; p < kLanes; ++p, to += kWide) {
        if (p0 + p >= pairs) break;
        if constexpr (kColumns == kLanes) {
          Store(to, square[p]);
        } else if (p0 + p + kLanes < pairs) {
          StoreHalves(to, to + kLanes * kWide, square[p]);
        } else {
          StoreN(to, square[p], kColumns);
        }
      }
    }
  }
}

// As GemmKernels::pack_a and pack_b.
template <int64_t kWide>
void Pack(const GemmView& view, int64_t width, int64_t depth, float* dst) {
  const auto* const src = static_cast<const Bf16*>(view.data);
  const int64_t ws = view.width_stride, ds = view.depth_stride;
  const int64_t pairs = (depth + 1) / 2;
  if (ds == 1) {
    for (int64_t w = 0; w < width; w += kWide) {
      PackAlong<kWide>(src + w * ws, ws, width - w, depth, dst + w * pairs);
    }
    return;
  }
  constexpr int64_t kStep = kWide < kLanes ? kWide : kLanes;
  for (int64_t p = 0; p < pairs; ++p) {
    const Bf16* const even = src + 2 * p * ds;
    const Bf16* const odd = 2 * p + 1 < depth ? even + ds : nullptr;
    // Rows are read along the whole width, so that long strides cost few translations.
    for (int64_t w = 0; w < width; w += kWide) {
      float* const to = dst + w * pairs + p * kWide;
      for (int64_t x = 0; x < kWide; x += kStep) {
        const int64_t n = width - w - x < kStep ? width - w - x : kStep;
        if (ws == 1) {
          StoreN(to + x, PairsAcross(even + w + x, odd == nullptr ? odd : odd + w + x, n), kStep);
          __builtin_prefetch(even + 6 * ds + w + x);
          __builtin_prefetch(even + 7 * ds + w + x);
        } else {
          StorePairs(even + (w + x) * ws, odd == nullptr ? odd : odd + (w + x) * ws, ws, n, kStep,
                     to + x);
        }
      }
    }
  }
}

// ---- Products of a few rows ---------------------------------------------------------------------

// Pairs of rows of B (RowsOf of gemm_rows.h).
struct PairRows {
  const Bf16* data;
  int64_t stride;
  int64_t depth;

  using Sum = PairProducts;
  static constexpr bool kUnrolls = true;
  int64_t whole() const { return depth / 2; }
  int64_t count() const { return (depth + 1) / 2; }
  TESSERA_INLINE bool Has(int64_t) const { return true; }
  TESSERA_INLINE VecF Row(int64_t s, int64_t j) const { return RowN(s, j, kLanes); }
  TESSERA_INLINE VecF RowN(int64_t s, int64_t j, int64_t n) const {
    const Bf16* const even = At(s, j);
    return PairsAcross(even, 2 * s + 1 < depth ? even + stride : nullptr, n);
  }
  TESSERA_INLINE void Fetch(int64_t s, int64_t j) const {
    __builtin_prefetch(At(s, j));
    __builtin_prefetch(At(s, j) + stride);
  }
  TESSERA_INLINE const Bf16* At(int64_t s, int64_t j) const { return data + 2 * s * stride + j; }
};

// Rows of a panel that Pack made.
struct PackedRows : RowsOf<float> {
  using Sum = PairProducts;
  static constexpr bool kUnrolls = false;
};

// A vector of columns at a time: squares of it are brought into columns in registers and used
// there.
template <int kRows>
__attribute__((noinline)) void Along(int64_t depth, const float* a, const Bf16* b, int64_t ws,
                                     int64_t width, float* sums) {
  for (int64_t j = 0; j < width; j += kLanes) {
    VecF sum[kRows];
    for (VecF& s : sum) s = Zero();
    for (int64_t k = 0; k < depth; k += 2 * kLanes) {
      const float* const factors = a + k / 2 * kRows;
      const int64_t pairs = (depth - k + 1) / 2;
      VecF square[kLanes];
      LoadSquare<kLanes>(b + j * ws + k, ws, width - j, depth - k, kLanes, square);
      const auto add = [&](int64_t p) __attribute__((always_inline)) {
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
          sum[i] = PairProducts::Add(Set(factors[p * kRows + i]), square[p], sum[i]);
        }
      };
      // One row uses the registers that the square is in; for more it is read from the stack.
      if (kRows == 1 && pairs >= kLanes) {
#pragma GCC unroll 16
        for (int64_t p = 0; p < kLanes; ++p) add(p);
      } else {
#pragma GCC unroll 1
        for (int64_t p = 0; p < kLanes && p < pairs; ++p) add(p);
      }
    }
    for (int i = 0; i < kRows; ++i) StoreN(sums + i * width + j, sum[i], width - j);
  }
}

void Skinny(int64_t rows, int64_t depth, const float* a, const GemmView& b, int64_t width,
            float* sums) {
  if (b.element == GemmElement::kFloat32) {
    const PackedRows packed{{static_cast<const float*>(b.data), b.depth_stride, depth, 0}};
    return AcrossRows(rows, a, packed, width, sums);
  }
  const auto* const data = static_cast<const Bf16*>(b.data);
  if (b.width_stride == 1) {
    return AcrossRows(rows, a, PairRows{data, b.depth_stride, depth}, width, sums);
  }
  switch (rows) {
    case 1:
      return Along<1>(depth, a, data, b.width_stride, width, sums);
    case 4:
      return Along<4>(depth, a, data, b.width_stride, width, sums);
    default:
      return Along<8>(depth, a, data, b.width_stride, width, sums);
  }
}

}  // namespace

const GemmKernels<float> kGemmPairs = {kTileRows,
                                       kPanel,
                                       1,
                                       1,
                                       Pack<kTileRows>,
                                       Pack<kPanel>,
                                       Tile<float, PairProducts>,
                                       Skinny,
                                       FinishRow<float>,
                                       LoadRow<float>,
                                       StoreRow<float>};

}  // namespace tessera::TESSERA_ISA
