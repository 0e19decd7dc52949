// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/product_workspace.h"

#include "ops/matmul/product_layout.h"

namespace tessera {
namespace {

size_t Aligned(int64_t bytes) { return (static_cast<size_t>(bytes) + 255) / 256 * 256; }

size_t MatmulWorkspace(const MatmulArgs& args) { return WorkspaceOf(args).bytes; }
size_t FusedMatmulWorkspace(const FusedMatmulArgs& args) { return WorkspaceOf(args.product).bytes; }

TESSERA_REGISTER_WORKSPACE(matmul_kernel, DeviceType::kCuda, MatmulWorkspace);
TESSERA_REGISTER_WORKSPACE(fused_matmul_kernel, DeviceType::kCuda, FusedMatmulWorkspace);

}  // namespace

FoldedBatch FoldBatch(const MatmulArgs& args) {
  FoldedBatch folded;
  for (int d = 0; d < args.batch.ndim(); ++d) {
    if (args.batch[d] == 1) continue;
    const int last = folded.sizes.ndim() - 1;
    if (last >= 0 && folded.a_strides[last] == args.a_batch_strides[d] * args.batch[d] &&
        folded.b_strides[last] == args.b_batch_strides[d] * args.batch[d]) {
      folded.sizes[last] *= args.batch[d];
      folded.a_strides[last] = args.a_batch_strides[d];
      folded.b_strides[last] = args.b_batch_strides[d];
    } else {
      folded.sizes.push_back(args.batch[d]);
      folded.a_strides.push_back(args.a_batch_strides[d]);
      folded.b_strides.push_back(args.b_batch_strides[d]);
    }
  }
  const int last = folded.sizes.ndim() - 1;
  for (int d = 0; d < last; ++d) folded.outer *= folded.sizes[d];
  if (last >= 0) {
    folded.count = folded.sizes[last];
    folded.a_stride = folded.a_strides[last];
    folded.b_stride = folded.b_strides[last];
  }
  return folded;
}

ProductWorkspace WorkspaceOf(const MatmulArgs& args) {
  ProductWorkspace workspace;
  if (args.k == 0) return workspace;
  const FoldedBatch batch = FoldBatch(args);
  const auto size = static_cast<int64_t>(DTypeSize(args.dtype));
  workspace.bytes = kLibraryWorkspace;
  if (!AsColumnMajor(args.m, args.k, args.a_row_stride, args.a_col_stride)) {
    workspace.packed_a = workspace.bytes;
    workspace.bytes += Aligned((batch.a_stride == 0 ? 1 : batch.count) * args.m * args.k * size);
  }
  if (!AsColumnMajor(args.k, args.n, args.b_row_stride, args.b_col_stride)) {
    workspace.packed_b = workspace.bytes;
    workspace.bytes += Aligned((batch.b_stride == 0 ? 1 : batch.count) * args.k * args.n * size);
  }
  return workspace;
}

}  // namespace tessera
