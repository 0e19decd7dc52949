// SPDX-License-Identifier: Apache-2.0
// What a reduction kernel is given: a contiguous x seen as [outer, count, inner], reduced over the
// middle. Results have outer * inner elements and are written with "=".
#ifndef TESSERA_OPS_REDUCTION_REDUCTION_KERNEL_H_
#define TESSERA_OPS_REDUCTION_REDUCTION_KERNEL_H_

#include <cstdint>

#include "core/kernel_table.h"
#include "core/tensor.h"

namespace tessera {

struct SumArgs {
  DType dtype;  // of x and out; floating or int64
  int64_t outer;
  int64_t count;
  int64_t inner;
  const void* x;
  void* out;
};

// Of the largest or smallest element along a dim, and where it stands.
struct ExtremeArgs {
  DType dtype;
  int64_t outer;
  int64_t count;  // >= 1
  int64_t inner;
  const void* x;
  bool largest;      // else the smallest
  void* values;      // of dtype
  int64_t* indices;  // position of the value in the middle dim
};

inline KernelWork WorkOf(const SumArgs& args) {
  return {.bytes = BytesOfElements(args.dtype, args.outer * (args.count + 1) * args.inner)};
}
inline KernelWork WorkOf(const ExtremeArgs& args) {
  return {.bytes = BytesOfElements(args.dtype, args.outer * (args.count + 1) * args.inner)};
}

inline KernelTable<SumArgs> sum_kernel{"sum"};
inline KernelTable<ExtremeArgs> extreme_kernel{"max"};

}  // namespace tessera

#endif  // TESSERA_OPS_REDUCTION_REDUCTION_KERNEL_H_
