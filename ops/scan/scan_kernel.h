// SPDX-License-Identifier: Apache-2.0
// What the scan kernel is given. Both tensors are contiguous; the result is written with "=".
#ifndef TESSERA_OPS_SCAN_SCAN_KERNEL_H_
#define TESSERA_OPS_SCAN_SCAN_KERNEL_H_

#include "core/dtype.h"
#include "core/kernel_table.h"
#include "ops/along_dim.h"

namespace tessera {

struct CumSumArgs {
  DType dtype;  // of x and out; floating or int64
  AlongDim dim;
  bool from_end;  // out[i] = x[i] + ... + x[count - 1]
  const void* x;
  void* out;
};

inline KernelWork WorkOf(const CumSumArgs& args) {
  return {.bytes =
              2 * BytesOfElements(args.dtype, args.dim.outer * args.dim.count * args.dim.inner)};
}

inline KernelTable<CumSumArgs> cumsum_kernel{"cumsum"};

}  // namespace tessera

#endif  // TESSERA_OPS_SCAN_SCAN_KERNEL_H_
