// SPDX-License-Identifier: Apache-2.0
// What the indexing kernels are given. All tensors are contiguous.
#ifndef TESSERA_OPS_INDEX_INDEX_KERNEL_H_
#define TESSERA_OPS_INDEX_INDEX_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"

namespace tessera {

// out[o, j, :] = x[o, indices[j] - begin, :], for x [outer, size, inner] and out [outer, count,
// inner]; zeros where the index lies outside of [begin, begin + size). Written with "=".
struct TakeArgs {
  DType dtype;
  int64_t outer;
  int64_t size;
  int64_t inner;
  int64_t count;
  int64_t begin;
  const void* x;
  const int64_t* indices;
  void* out;
};

// x[o, indices[j] - begin, :] += grad[o, j, :] in the order of j; other indices, and those equal to
// `skip`, are left out.
struct PutArgs {
  DType x_dtype;  // floating
  DType grad_dtype;
  int64_t outer;
  int64_t size;
  int64_t inner;
  int64_t count;
  int64_t begin;
  void* x;
  const int64_t* indices;
  const void* grad;
  int64_t skip;
};

// Along the middle dim of x [outer, size, inner], with index (and the other tensor, `picked`) of
// [outer, count, inner]: gather writes picked "=", scatter does x "+=" in index order.
struct GatherArgs {
  DType dtype;
  int64_t outer;
  int64_t size;
  int64_t inner;
  int64_t count;
  void* x;
  const int64_t* index;
  void* picked;
};

inline KernelWork WorkOf(const TakeArgs& args) {
  return {.bytes = 2 * BytesOfElements(args.dtype, args.outer * args.count * args.inner)};
}
inline KernelWork WorkOf(const PutArgs& args) {
  const int64_t elements = args.outer * args.count * args.inner;
  return {.bytes = 2 * BytesOfElements(args.x_dtype, elements) +
                   BytesOfElements(args.grad_dtype, elements)};
}
inline KernelWork WorkOf(const GatherArgs& args) {
  const int64_t elements = args.outer * args.count * args.inner;
  return {.bytes =
              2 * BytesOfElements(args.dtype, elements) + BytesOfElements(DType::kInt64, elements)};
}

inline KernelTable<TakeArgs> take_kernel{"index_select"};
inline KernelTable<PutArgs> put_kernel{"index_add"};
inline KernelTable<GatherArgs> gather_kernel{"gather"};
inline KernelTable<GatherArgs> scatter_add_kernel{"scatter_add"};

}  // namespace tessera

#endif  // TESSERA_OPS_INDEX_INDEX_KERNEL_H_
