// SPDX-License-Identifier: Apache-2.0
// Matrix products on the CPU, on raw pointers: C = alpha A B, or C += alpha A B.
//
//   // y[m, n] = x[m, k] w[n, k]^T
//   GemmArgs args;
//   args.m = m, args.n = n, args.k = k;
//   args.a = x, args.a_row_stride = k, args.a_col_stride = 1;
//   args.b = w, args.b_row_stride = 1, args.b_col_stride = k;   // transposed by its strides
//   args.c = y, args.c_row_stride = n;
//   Gemm(args);
//
// Shapes: A [m, k], B [k, n], C [m, n]; element (i, j) of A is at a[i * a_row_stride +
// j * a_col_stride], of B likewise, with any strides in elements (also 0 and negative); C's columns
// are adjacent. C must not overlap A or B. m, n and k may be zero: with k == 0, C is set to zero,
// or left alone when accumulating.
//
// Dtypes: float32, bfloat16 and float16 in any combination, computed in float32; or all float64.
// A bfloat16 or float16 C is rounded once, at the end.
//
// The bits: element (i, j) is, whatever m, n, its place, the strides, the batch and the number of
// threads,
//     c = 0 (or C's old value);  for each block of kGemmDepthBlock indices k, in order:
//         s = 0;  for k in block: s = fma(A[i, k], B[k, j], s);   c = fma(alpha, s, c)
// (the first c is alpha * s when not accumulating; the instruction set `baseline` has no fma and
// rounds each product). Where A and B are both bfloat16, k goes by pairs, the odd one first: 1, 0,
// 3, 2, ..., where an odd number of indices is followed by one of zeros, and operands and results
// of these operations that are below the normal numbers count as zeros of their sign. That is what
// the instruction VDPBF16PS does, and what all instruction sets do, so that those with fma have the
// same bits, with that instruction or without. Where AMX is asked for (core/cpu_amx.h), these
// products go by 32 indices instead, zeros behind the last, as TDPBF16PS adds them to s:
//     even = odd = 0;  for k in 0, 2, ..., 30:  even = fma(A[i, k], B[k, j], even);
//                                               odd = fma(A[i, k + 1], B[k + 1, j], odd);
//     s = s + (even + odd)
// A shard of the columns or rows therefore equals the same part of the whole product, bit for bit,
// on the same instruction set. NaN and infinity are not skipped.
//
// Method: packed panels and a register-blocked tile, as in K. Goto and R. van de Geijn, "Anatomy of
// High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008. Threads share the packed B.
// Scratch: at most about 10 MiB per thread, kept until the thread ends; none on the heap besides.
#ifndef TESSERA_OPS_MATMUL_GEMM_H_
#define TESSERA_OPS_MATMUL_GEMM_H_

#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "core/placement.h"

namespace tessera {

// Indices of k that are summed before they are added to C.
inline constexpr int64_t kGemmDepthBlock = 384;

struct GemmArgs {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const void* a = nullptr;
  int64_t a_row_stride = 0;
  int64_t a_col_stride = 1;
  const void* b = nullptr;
  int64_t b_row_stride = 0;
  int64_t b_col_stride = 1;
  void* c = nullptr;
  int64_t c_row_stride = 0;
  DType a_dtype = DType::kFloat32;
  DType b_dtype = DType::kFloat32;
  DType c_dtype = DType::kFloat32;
  bool accumulate = false;  // C += instead of C =
  float alpha = 1.0f;
  // What PackGemmB made of B, for products that share it; b itself is not read then.
  const void* packed_b = nullptr;
};

// Elements between the operands of consecutive products of a batch; 0 shares an operand (not C).
struct GemmBatch {
  int64_t count = 1;
  int64_t a_stride = 0;
  int64_t b_stride = 0;
  int64_t c_stride = 0;
};

// Throws Error for negative sizes and for dtypes that do not go together.
void Gemm(const GemmArgs& args);

// B in the form that products read, packed once instead of by each of them:
//
//   std::vector<float> packed(PackedGemmElements(args));
//   PackGemmB(args, packed.data());
//   args.packed_b = packed.data();                     // then any number of Gemm(args)
//
// Elements are of the type that is computed in: double for float64, else float. Only n, k, A's
// dtype and what `args` says of B count, and the instruction set, which must stay.
int64_t PackedGemmElements(const GemmArgs& args);
void PackGemmB(const GemmArgs& args, void* packed);

// `batch.count` products of the shape and strides of `args`; product i works on a + i * a_stride
// and so on. Each has the bits that Gemm gives it alone. A packed B is shared: its stride is 0, or
// Error is thrown.
void BatchedGemm(const GemmArgs& args, const GemmBatch& batch);

// C = A B, where k is a power of two of leaves, each some runs of indices that no other leaf has. A
// leaf's sum is as above, with a block ending where a run ends; the leaves' sums are added in a
// binary tree, ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), of which those without indices are no
// part. Half of the leaves therefore give one of the two terms of the last sum. C is of the type
// that is computed in; without accumulation, alpha and a packed B, else Error is thrown.
void TreeGemm(const GemmArgs& args, const std::vector<std::vector<Share>>& leaves);

// Products of any shapes, which are spread over the threads together. Each has the bits that Gemm
// gives it alone. None of them reads what another one writes.
void GroupedGemm(const std::vector<GemmArgs>& products);

}  // namespace tessera

#endif  // TESSERA_OPS_MATMUL_GEMM_H_
