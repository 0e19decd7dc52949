// SPDX-License-Identifier: Apache-2.0
// What gemm.cc asks of each instruction set: packing, the tile product and the skinny product.
//
// Plain pointers only, since gemm_isa.cc includes this header with instruction-set flags. E is the
// type that is computed in: float (for float32, bfloat16 and float16 elements) or double.
#ifndef TESSERA_OPS_MATMUL_GEMM_KERNEL_H_
#define TESSERA_OPS_MATMUL_GEMM_KERNEL_H_

#include <cstdint>

#include "core/cpu/every_isa.h"

namespace tessera {

// kBFloat16Pairs is bfloat16 in a product of bfloat16 by bfloat16, which takes k by pairs (below).
enum class GemmElement : uint8_t { kFloat32, kBFloat16, kFloat16, kFloat64, kBFloat16Pairs };

// A strided view of `width` x `depth` elements: element (w, k) is at
// data[w * width_stride + k * depth_stride]. For A, w is a row of C; for B, a column.
struct GemmView {
  const void* data;
  int64_t width_stride;
  int64_t depth_stride;
  GemmElement element;
};

// The functions of one instruction set for one element type.
//
// Of kBFloat16Pairs, indices k and k + 1 (k even) are packed together, as so many elements of E as
// `pair_elements` says: two, the odd index first, so that the chain goes through them in that
// order, or one that holds both numbers, the even one in its lower half, for a `tile` and a
// `skinny` that have an instruction for that. The depth is filled up with zeros to a multiple of
// `pairs_at_once` pairs. "Depth" is in packed elements for whatever is packed.
template <typename E>
struct GemmKernels {
  // C is computed in tiles of mr x nr.
  int64_t mr, nr;
  int64_t pair_elements, pairs_at_once;

  // Packs a view for the tile product: panels of mr (pack_a) or nr (pack_b) along the width, each
  // holding depth x mr (or nr) elements converted to E; the last panel is filled up with zeros.
  // dst has room for width rounded up times packed depth elements.
  void (*pack_a)(const GemmView& view, int64_t width, int64_t depth, E* dst);
  void (*pack_b)(const GemmView& view, int64_t width, int64_t depth, E* dst);

  // One tile: c[i * c_row_stride + j] = alpha * s, or += with `accumulate`, for all i < mr, j < nr,
  // where s is the chain s = fma(a[k][i], b[k][j], s) over k = 0..depth-1 from zero (AMX: gemm.h),
  // and the last step is one fma(alpha, s, c).
  void (*tile)(int64_t depth, const E* a, const E* b, E* c, int64_t c_row_stride, E alpha,
               bool accumulate);

  // The same products for 1, 4 or 8 (kSkinnyRows) rows of A and a B that is not packed, whose
  // width stride is 1 or, in float, whose depth stride is: sums[i * width + j] = the chain s for
  // i < rows, j < width. a holds [packed depth][rows]. Columns that lie one behind the other are
  // taken nr / 3 at a time, while the next ones are fetched. A panel that pack_b made is a view of
  // float32 here. Null: such products are `tile`s too.
  void (*skinny)(int64_t rows, int64_t depth, const E* a, const GemmView& b, int64_t width,
                 E* sums);

  // c[j] = alpha * s[j], or fma(alpha, s[j], c[j]) with `accumulate`: the last step of a chain.
  void (*finish_row)(int64_t n, const E* s, E* c, E alpha, bool accumulate);

  // Conversion of n consecutive elements of C to E and back.
  void (*load_row)(GemmElement element, const void* src, int64_t n, E* dst);
  void (*store_row)(GemmElement element, const E* src, int64_t n, void* dst);

  // What a thread calls before and after it uses `tile`; null: nothing.
  void (*enter)() = nullptr;
  void (*leave)() = nullptr;

  // `tile` of the first `height` <= mr rows alone, at their cost; the rest of C is not touched.
  // Meanwhile it fetches `depth` lines of memory from `next` on into the second-level cache.
  // Null: there is none.
  void (*rows_tile)(int64_t height, int64_t depth, const E* a, const E* b, E* c,
                    int64_t c_row_stride, E alpha, bool accumulate, const E* next) = nullptr;
};

inline constexpr int64_t kSkinnyRows = 8;

TESSERA_DECLARE_FOR_EVERY_ISA(extern const GemmKernels<float> kGemmFloat;
                              extern const GemmKernels<double> kGemmDouble;)
// On x86-64.
namespace avx512bf16 {
extern const GemmKernels<float> kGemmPairs;
}  // namespace avx512bf16
namespace amx {
extern const GemmKernels<float> kGemmPairs;  // its sums have other bits (gemm.h)
}  // namespace amx

}  // namespace tessera

#endif  // TESSERA_OPS_MATMUL_GEMM_KERNEL_H_
