// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <vector>

#include "core/thread_pool.h"
#include "ops/matmul/gemm.h"
#include "ops/matmul/matmul_kernel.h"

namespace tessera {
namespace {

const char* Advance(const void* p, int64_t elements, DType dtype) {
  return static_cast<const char*>(p) + elements * static_cast<int64_t>(DTypeSize(dtype));
}

void FillRowsWithBias(const MatmulArgs& args, int64_t rows) {
  const size_t bytes = static_cast<size_t>(args.n) * DTypeSize(args.c_dtype);
  ParallelFor(rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(static_cast<char*>(args.c) + static_cast<size_t>(i) * bytes, args.bias, bytes);
    }
  });
}

GemmArgs GemmOf(const MatmulArgs& args) {
  GemmArgs gemm;
  gemm.m = args.m;
  gemm.n = args.n;
  gemm.k = args.k;
  gemm.a_row_stride = args.a_row_stride;
  gemm.a_col_stride = args.a_col_stride;
  gemm.b_row_stride = args.b_row_stride;
  gemm.b_col_stride = args.b_col_stride;
  gemm.c_row_stride = args.n;
  gemm.a_dtype = args.dtype;
  gemm.b_dtype = args.dtype;
  gemm.c_dtype = args.c_dtype;
  gemm.packed_b = args.packed_b;
  return gemm;
}

void Multiply(const MatmulArgs& args, bool accumulate) {
  GemmArgs gemm = GemmOf(args);
  gemm.accumulate = accumulate;
  if (args.bias != nullptr) {
    FillRowsWithBias(args, args.batch.numel() * args.m);
    gemm.accumulate = true;
  }
  // The last batch dim runs inside BatchedGemm, the others here.
  const int last = args.batch.ndim() - 1;
  GemmBatch batch;
  int64_t outer = 1;
  if (last >= 0) {
    batch = {args.batch[last], args.a_batch_strides[last], args.b_batch_strides[last],
             args.m * args.n};
    for (int d = 0; d < last; ++d) outer *= args.batch[d];
  }
  for (int64_t i = 0; i < outer; ++i) {
    int64_t a_offset = 0;
    int64_t b_offset = 0;
    int64_t index = i;
    for (int d = last - 1; d >= 0; --d) {
      a_offset += index % args.batch[d] * args.a_batch_strides[d];
      b_offset += index % args.batch[d] * args.b_batch_strides[d];
      index /= args.batch[d];
    }
    gemm.a = Advance(args.a, a_offset, args.dtype);
    gemm.b = Advance(args.b, b_offset, args.dtype);
    gemm.c = static_cast<char*>(args.c) +
             i * batch.count * args.m * args.n * static_cast<int64_t>(DTypeSize(args.c_dtype));
    if (last >= 0) {
      BatchedGemm(gemm, batch);
    } else {
      Gemm(gemm);
    }
  }
}

// Of two matrices.
GemmArgs WholeGemmOf(const MatmulArgs& args) {
  GemmArgs gemm = GemmOf(args);
  gemm.a = args.a;
  gemm.b = args.b;
  gemm.c = args.c;
  gemm.c_row_stride = args.c_row_stride;
  return gemm;
}

void GroupedMatmulCpu(const GroupedMatmulArgs& args) {
  std::vector<GemmArgs> products;
  for (const MatmulArgs& one : args.products) products.push_back(WholeGemmOf(one));
  GroupedGemm(products);
}

void TreeMatmulCpu(const TreeMatmulArgs& args) { TreeGemm(WholeGemmOf(args.product), args.leaves); }

void MatmulCpu(const MatmulArgs& args) { Multiply(args, /*accumulate=*/false); }

// A product may be added to what is there; what follows one is never done in the same pass.
void FusedMatmulCpu(const FusedMatmulArgs& args) {
  *args.done = args.epilogue == ProductEpilogue::kNone;
  if (*args.done) Multiply(args.product, args.accumulate);
}

GemmArgs FactorOf(const PackArgs& args) {
  GemmArgs gemm;
  gemm.n = args.n;
  gemm.k = args.k;
  gemm.b = args.b;
  gemm.b_row_stride = args.b_row_stride;
  gemm.b_col_stride = args.b_col_stride;
  gemm.a_dtype = args.dtype;
  gemm.b_dtype = args.dtype;
  gemm.c_dtype = args.dtype;
  return gemm;
}

void PackCpu(const PackArgs& args) { PackGemmB(FactorOf(args), args.packed); }

size_t PackedBytes(const PackArgs& args) {
  const size_t element = args.dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
  return static_cast<size_t>(PackedGemmElements(FactorOf(args))) * element;
}

TESSERA_REGISTER_KERNEL(matmul_kernel, DeviceType::kCpu, MatmulCpu);
TESSERA_REGISTER_KERNEL(grouped_matmul_kernel, DeviceType::kCpu, GroupedMatmulCpu);
TESSERA_REGISTER_KERNEL(tree_matmul_kernel, DeviceType::kCpu, TreeMatmulCpu);
TESSERA_REGISTER_KERNEL(fused_matmul_kernel, DeviceType::kCpu, FusedMatmulCpu);
TESSERA_REGISTER_KERNEL(pack_kernel, DeviceType::kCpu, PackCpu);
TESSERA_REGISTER_WORKSPACE(pack_kernel, DeviceType::kCpu, PackedBytes);

}  // namespace
}  // namespace tessera
