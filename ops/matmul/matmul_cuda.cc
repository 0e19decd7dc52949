// SPDX-License-Identifier: Apache-2.0
// Matrix products on the GPU: through cuBLASLt with what follows them in its epilogue, operands
// where they are; otherwise by plain_product_cuda.cu.
#include <cublasLt.h>

#include <functional>
#include <optional>

#include "core/cuda/allocator.h"
#include "core/cuda/runtime.h"
#include "core/raw_kernels.h"
#include "ops/matmul/cublas_product.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/matmul/plain_product.h"
#include "ops/matmul/product_workspace.h"
#include "ops/reduction/reduction_kernel.h"

namespace tessera::cuda {
namespace {

Device ThisDevice() { return Device::Cuda(ActiveDevice()); }

// One call's worth of a product: [count, m, n], the operands shifted to where it begins.
struct Product {
  const MatmulArgs* args;
  const char* a;
  const char* b;
  char* c;
  int64_t a_row, a_col, a_batch;
  int64_t b_row, b_col, b_batch;
  int64_t count;
};

// The memory that the calls of one launch share.
class ProductMemory {
 public:
  explicit ProductMemory(const MatmulArgs& args)
      : layout_(WorkspaceOf(args)), memory_(layout_.bytes) {}
  void* library() const { return memory_.data(); }
  char* packed_a() const { return memory_.as<char>() + layout_.packed_a; }
  char* packed_b() const { return memory_.as<char>() + layout_.packed_b; }

 private:
  const ProductWorkspace layout_;
  const Workspace memory_;
};

// A packed copy [count, d0, d1] of a matrix that cuBLASLt cannot read where it is.
void Pack(const char* data, DType dtype, const Shape& shape, const Shape& strides, char* packed) {
  const Device device = ThisDevice();
  copy_kernel.For(device)({{packed, dtype, device, shape, ContiguousStrides(shape)},
                           {const_cast<char*>(data), dtype, device, shape, strides}});
}

// The product as cuBLASLt takes it, without an epilogue; operands are packed where they must be.
CublasProduct ForCublas(Product p, const ProductMemory& memory) {
  const MatmulArgs& args = *p.args;
  std::optional<ColumnMajor> y = AsColumnMajor(args.m, args.k, p.a_row, p.a_col);
  if (!y) {
    const int64_t count = p.a_batch == 0 ? 1 : p.count;
    Pack(p.a, args.dtype, {count, args.m, args.k}, {p.a_batch, p.a_row, p.a_col},
         memory.packed_a());
    p.a = memory.packed_a();
    p.a_batch = count == 1 ? 0 : args.m * args.k;
    y = AsColumnMajor(args.m, args.k, args.k, 1);
  }
  std::optional<ColumnMajor> x = AsColumnMajor(args.k, args.n, p.b_row, p.b_col);
  if (!x) {
    const int64_t count = p.b_batch == 0 ? 1 : p.count;
    Pack(p.b, args.dtype, {count, args.k, args.n}, {p.b_batch, p.b_row, p.b_col},
         memory.packed_b());
    p.b = memory.packed_b();
    p.b_batch = count == 1 ? 0 : args.k * args.n;
    x = AsColumnMajor(args.k, args.n, args.n, 1);
  }
  CublasProduct product{};
  product.dtype = args.dtype;
  product.c_dtype = args.c_dtype;
  product.m = args.m;
  product.n = args.n;
  product.k = args.k;
  product.batch = p.count;
  product.a = p.a;
  product.y = *y;
  product.a_batch = p.a_batch;
  product.b = p.b;
  product.x = *x;
  product.b_batch = p.b_batch;
  product.c = p.c;
  product.c_row = args.c_row_stride;
  product.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  return product;
}

void RunPlain(const Product& p) {
  const MatmulArgs& args = *p.args;
  RunPlainProduct({args.dtype, args.c_dtype, args.m, args.n, args.k, p.count, p.a_row, p.a_col,
                   p.a_batch, p.b_row, p.b_col, p.b_batch, p.a, p.b, args.bias, p.c,
                   args.c_row_stride});
}

void RunProduct(const Product& p, const ProductMemory& memory) {
  const MatmulArgs& args = *p.args;
  if (args.k == 0) return RunPlain(p);
  CublasProduct product = ForCublas(p, memory);
  if (args.bias != nullptr) {
    product.epilogue = CUBLASLT_EPILOGUE_BIAS;
    product.bias = args.bias;
    if (RunCublasProduct(product, memory.library())) return;
    // The bias by itself, where that is what there is no algorithm for.
    product.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    product.bias = nullptr;
  }
  if (!RunCublasProduct(product, memory.library())) return RunPlain(p);
  if (args.bias == nullptr) return;
  const Device device = ThisDevice();
  const Shape shape{p.count * args.m, args.n};
  add_kernel.For(device)(
      {{p.c, args.c_dtype, device, shape, Shape{args.c_row_stride, 1}},
       {const_cast<void*>(args.bias), args.c_dtype, device, shape, Shape{0, 1}}});
}

Product FirstProduct(const MatmulArgs& args, const FoldedBatch& batch) {
  return {&args,
          static_cast<const char*>(args.a),
          static_cast<const char*>(args.b),
          static_cast<char*>(args.c),
          args.a_row_stride,
          args.a_col_stride,
          batch.a_stride,
          args.b_row_stride,
          args.b_col_stride,
          batch.b_stride,
          batch.count};
}

void MatmulCuda(const MatmulArgs& args) {
  const FoldedBatch batch = FoldBatch(args);
  const ProductMemory memory(args);
  const auto size = static_cast<int64_t>(DTypeSize(args.dtype));
  const auto c_size = static_cast<int64_t>(DTypeSize(args.c_dtype));
  const Product first = FirstProduct(args, batch);
  for (int64_t i = 0; i < batch.outer; ++i) {
    int64_t a_offset = 0;
    int64_t b_offset = 0;
    int64_t index = i;
    for (int d = batch.sizes.ndim() - 2; d >= 0; --d) {
      a_offset += index % batch.sizes[d] * batch.a_strides[d];
      b_offset += index % batch.sizes[d] * batch.b_strides[d];
      index /= batch.sizes[d];
    }
    Product part = first;
    part.a += a_offset * size;
    part.b += b_offset * size;
    part.c += i * batch.count * args.m * args.c_row_stride * c_size;
    RunProduct(part, memory);
  }
}

cublasLtEpilogue_t EpilogueOf(const FusedMatmulArgs& args) {
  const bool bias = args.product.bias != nullptr;
  switch (args.epilogue) {
    case ProductEpilogue::kNone:
      return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case ProductEpilogue::kGelu:
      if (args.aux == nullptr) return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
      return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case ProductEpilogue::kGeluGrad:
      return CUBLASLT_EPILOGUE_DGELU;
    // Column-major, the product is that of the transposed b and the transposed a.
    case ProductEpilogue::kSumsOfA:
      return CUBLASLT_EPILOGUE_BGRADB;
    case ProductEpilogue::kSumsOfB:
      return CUBLASLT_EPILOGUE_BGRADA;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// The product and the sums of an operand that an epilogue gives, one after the other: for want of a
// kernel of its own, or for its slowness, the library's epilogue may take longer. Nothing where the
// operand does not lie close.
std::function<void()> StepsOf(const FusedMatmulArgs& args, const CublasProduct& fused,
                              void* workspace) {
  const MatmulArgs& p = args.product;
  const bool of_a = args.epilogue == ProductEpilogue::kSumsOfA;
  if (!of_a && args.epilogue != ProductEpilogue::kSumsOfB) return nullptr;
  // [k, width] in memory.
  const int64_t width = of_a ? p.m : p.n;
  const int64_t row = of_a ? p.a_col_stride : p.b_row_stride;
  const int64_t column = of_a ? p.a_row_stride : p.b_col_stride;
  if (row != width || column != 1) return nullptr;
  CublasProduct plain = fused;
  plain.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  plain.bias = nullptr;
  const SumArgs sums{p.dtype, 1, p.k, width, of_a ? p.a : p.b, args.sums};
  return [plain, sums, workspace] {
    RunCublasProduct(plain, workspace);
    sum_kernel.For(ThisDevice())(sums);
  };
}

void FusedMatmulCuda(const FusedMatmulArgs& args) {
  const ProductMemory memory(args.product);
  CublasProduct product = ForCublas(FirstProduct(args.product, FoldedBatch{}), memory);
  product.epilogue = EpilogueOf(args);
  product.accumulate = args.accumulate;
  product.bias = args.sums != nullptr ? args.sums : args.product.bias;
  product.aux = args.aux;
  *args.done =
      RunCublasProduct(product, memory.library(), StepsOf(args, product, memory.library()));
}

TESSERA_REGISTER_KERNEL(matmul_kernel, DeviceType::kCuda, MatmulCuda);
TESSERA_REGISTER_KERNEL(fused_matmul_kernel, DeviceType::kCuda, FusedMatmulCuda);

}  // namespace
}  // namespace tessera::cuda
