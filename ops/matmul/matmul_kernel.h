// SPDX-License-Identifier: Apache-2.0
// What a matrix product kernel is given.
#ifndef TESSERA_OPS_MATMUL_MATMUL_KERNEL_H_
#define TESSERA_OPS_MATMUL_MATMUL_KERNEL_H_

#include <cstdint>
#include <vector>

#include "core/kernel_table.h"
#include "core/placement.h"
#include "core/tensor.h"

namespace tessera {

// c = a b (+ bias), written with "=", for every index of `batch`. Strides count elements; those of
// the batch are 0 where an operand repeats. c [batch..., m, n] lies as one matrix of
// batch.numel() * m rows, whose elements are adjacent.
struct MatmulArgs {
  int64_t m;
  int64_t n;
  int64_t k;
  DType dtype;    // of a and b
  DType c_dtype;  // dtype or, for half precision, float32
  const void* a;
  int64_t a_row_stride;
  int64_t a_col_stride;
  const void* b;
  int64_t b_row_stride;
  int64_t b_col_stride;
  void* c;
  int64_t c_row_stride;  // >= n; on the CPU n
  const void* bias;      // [n] of c_dtype, or nullptr
  Shape batch;
  Shape a_batch_strides;
  Shape b_batch_strides;
  const void* packed_b;  // b as pack_kernel left it, for one b; nullptr: b as it is
};

// Products of one device, without a bias or a batch. A device type without such a kernel takes them
// one by one.
struct GroupedMatmulArgs {
  std::vector<MatmulArgs> products;
};

// A product without a bias or a batch, whose k is summed in a tree of leaves (ops/matmul/gemm.h).
struct TreeMatmulArgs {
  MatmulArgs product;
  std::vector<std::vector<Share>> leaves;
};

// Brings b of products that share it into the form that the device reads. `packed` is the kernel's
// workspace, which the caller takes and keeps; a device type that needs none reads b as it is.
struct PackArgs {
  int64_t n;
  int64_t k;
  DType dtype;
  const void* b;
  int64_t b_row_stride;
  int64_t b_col_stride;
  void* packed;  // "="
};

// What a device's library may do to a product in the same pass. GELU is its approximation by tanh.
enum class ProductEpilogue : uint8_t {
  kNone,
  kGelu,      // aux = a b (+ bias) unless aux is nullptr; c = gelu(a b + bias)
  kGeluGrad,  // c = (a b) gelu'(aux)
  kSumsOfA,   // sums [m] = the sums of a over k, "="
  kSumsOfB,   // sums [n] = the sums of b over k, "="
};

// One product of two matrices, together with what else is to be done. A kernel of it may decline:
// then `*done` becomes false and nothing was written. Where a device type has none, or it declines,
// the operation takes the steps one by one.
struct FusedMatmulArgs {
  MatmulArgs product;  // its batch is empty
  ProductEpilogue epilogue;
  bool accumulate;  // c "+=" a b; without bias and GELU
  void* aux;        // [m, n] contiguous, of c_dtype
  void* sums;       // of c_dtype
  bool* done;       // true at first
};

inline KernelWork WorkOf(const MatmulArgs& args) {
  int64_t pairs = 1;
  int64_t a = args.m * args.k;
  int64_t b = args.k * args.n;
  for (int d = 0; d < args.batch.ndim(); ++d) {
    pairs *= args.batch[d];
    a *= args.a_batch_strides[d] == 0 ? 1 : args.batch[d];
    b *= args.b_batch_strides[d] == 0 ? 1 : args.batch[d];
  }
  return {.flops = 2.0 * static_cast<double>(pairs * args.m) * static_cast<double>(args.n) *
                   static_cast<double>(args.k),
          .bytes = BytesOfElements(args.dtype, a + b) +
                   BytesOfElements(args.c_dtype, pairs * args.m * args.n),
          .products = args.dtype,
          .detail = Concat(pairs == 1 ? "" : Concat(pairs, " of "), args.m, "x", args.k, "x",
                           args.n, " ", DTypeName(args.dtype))};
}
inline KernelWork WorkOf(const GroupedMatmulArgs& args) {
  KernelWork work;
  for (const MatmulArgs& product : args.products) {
    const KernelWork one = WorkOf(product);
    work.flops += one.flops;
    work.bytes += one.bytes;
    work.products = one.products;
  }
  return work;
}
inline KernelWork WorkOf(const TreeMatmulArgs& args) { return WorkOf(args.product); }
inline KernelWork WorkOf(const FusedMatmulArgs& args) { return WorkOf(args.product); }
inline KernelWork WorkOf(const PackArgs& args) {
  return {.bytes = 2 * BytesOfElements(args.dtype, args.n * args.k)};
}

inline KernelTable<MatmulArgs> matmul_kernel{"matmul"};
inline KernelTable<GroupedMatmulArgs> grouped_matmul_kernel{"grouped matmul"};
inline KernelTable<TreeMatmulArgs> tree_matmul_kernel{"matmul in a tree"};
inline KernelTable<PackArgs> pack_kernel{"matmul's packing"};
inline KernelTable<FusedMatmulArgs> fused_matmul_kernel{"matmul and epilogue"};

}  // namespace tessera

#endif  // TESSERA_OPS_MATMUL_MATMUL_KERNEL_H_
