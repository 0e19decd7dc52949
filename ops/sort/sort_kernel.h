// SPDX-License-Identifier: Apache-2.0
// What the sorting kernel is given. Both tensors are contiguous.
#ifndef TESSERA_OPS_SORT_SORT_KERNEL_H_
#define TESSERA_OPS_SORT_SORT_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "core/cuda/sort_pairs.h"
#include "core/dtype.h"
#include "core/kernel_table.h"
#include "ops/along_dim.h"

namespace tessera {

// indices[outer, take, inner] = where the first `take` of the sorted middle dim of x stand in it,
// in the order of ops/sort/sort.h. Written with "=".
struct SortArgs {
  DType dtype;
  AlongDim dim;
  int64_t take;  // 1 <= take <= dim.count
  bool descending;
  const void* x;
  int64_t* indices;
};

inline KernelTable<SortArgs> sort_kernel{"sort"};

// Elements of the whole tensor.
inline int64_t SortedElements(const SortArgs& args) {
  return args.dim.outer * args.dim.count * args.dim.inner;
}
// On the GPU: keys and positions, as they come and sorted, then what the sort itself takes.
inline size_t SortWords(const SortArgs& args) {
  return 4 * static_cast<size_t>(SortedElements(args)) * sizeof(uint32_t);
}
inline size_t SortWorkspace(const SortArgs& args) {
  return SortWords(args) + cuda::SortPairsScratch(SortedElements(args));
}
inline KernelWork WorkOf(const SortArgs& args) {
  return {.bytes = BytesOfElements(args.dtype, SortedElements(args)) +
                   BytesOfElements(DType::kInt64, args.dim.outer * args.take * args.dim.inner)};
}

}  // namespace tessera

#endif  // TESSERA_OPS_SORT_SORT_KERNEL_H_
