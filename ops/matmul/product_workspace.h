// SPDX-License-Identifier: Apache-2.0
// How the products of a batch are run on the GPU one call after the other, and the workspace that
// they need there. By shapes and strides alone, so that `meta:cuda` counts the same bytes.
#ifndef TESSERA_OPS_MATMUL_PRODUCT_WORKSPACE_H_
#define TESSERA_OPS_MATMUL_PRODUCT_WORKSPACE_H_

#include <cstddef>
#include <cstdint>

#include "ops/matmul/matmul_kernel.h"

namespace tessera {

// What cuBLASLt may use in each product. An algorithm's own need is known on the GPU only, so this
// much is always set aside.
inline constexpr size_t kLibraryWorkspace = size_t{32} << 20;

// The batch with adjacent dims that both operands allow taken together. Its last dim, `count`, runs
// inside one call; the others, `outer`, are calls of their own.
struct FoldedBatch {
  Shape sizes;
  Shape a_strides;
  Shape b_strides;
  int64_t outer = 1;
  int64_t count = 1;
  int64_t a_stride = 0;
  int64_t b_stride = 0;
};
FoldedBatch FoldBatch(const MatmulArgs& args);

// One piece of memory, used again by each call: cuBLASLt's part, then packed copies of operands
// that it cannot read where they are (offset 0: none).
struct ProductWorkspace {
  size_t packed_a = 0;
  size_t packed_b = 0;
  size_t bytes = 0;
};
ProductWorkspace WorkspaceOf(const MatmulArgs& args);

}  // namespace tessera

#endif  // TESSERA_OPS_MATMUL_PRODUCT_WORKSPACE_H_
