// SPDX-License-Identifier: Apache-2.0
// What the kernels of routed rows are given. All tensors are contiguous. Weights are in float32, of
// float64 rows in that; nullptr: they are 1.
#ifndef TESSERA_OPS_ROUTED_ROWS_ROUTED_ROWS_KERNEL_H_
#define TESSERA_OPS_ROUTED_ROWS_ROUTED_ROWS_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"

namespace tessera {

// out[n, :] = sum over j of weights[n, j] * x[place[n, j], :], without places below 0. "=".
struct CombineRowsArgs {
  DType dtype;
  int64_t tokens;
  int64_t each;   // k
  int64_t width;  // C
  const void* x;
  const int64_t* place;
  const void* weights;
  void* out;
};

// rows[place[n, j], :] = weights[n, j] * x[n, :], "=", and where `d_weights` is not nullptr, also
// d_weights[n, j] = the sum of x[n, :] * with[place[n, j], :], 0 where the place is below 0. "=".
struct SpreadRowsArgs {
  DType dtype;
  int64_t tokens;
  int64_t each;
  int64_t width;
  const void* x;
  const int64_t* place;
  const void* weights;
  void* rows;
  const void* with;
  void* d_weights;
};

inline KernelWork WorkOf(const CombineRowsArgs& args) {
  return {.bytes = BytesOfElements(args.dtype, args.tokens * (args.each + 1) * args.width)};
}
inline KernelWork WorkOf(const SpreadRowsArgs& args) {
  const int64_t passes = args.d_weights == nullptr ? 1 : 2;
  return {.bytes =
              BytesOfElements(args.dtype, args.tokens * (passes * args.each + 1) * args.width)};
}

inline KernelTable<CombineRowsArgs> combine_rows_kernel{"combine_rows"};
inline KernelTable<SpreadRowsArgs> spread_rows_kernel{"spread_rows"};

}  // namespace tessera

#endif  // TESSERA_OPS_ROUTED_ROWS_ROUTED_ROWS_KERNEL_H_
