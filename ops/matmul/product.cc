// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/product.h"

#include <algorithm>

#include "autograd/autograd.h"
#include "core/memory_use.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/elementwise_kernel.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Elements per step of the leading dim of what an epilogue of GELU keeps.
constexpr int64_t kGeluAlignment = 8;

Shape BatchShape(const Tensor& t) { return Shape(t.shape().begin(), t.shape().end() - 2); }

Shape BatchStrides(const Tensor& t, const Shape& batch) {
  Shape strides = batch;
  const int lead = batch.ndim() - (t.ndim() - 2);
  for (int d = 0; d < batch.ndim(); ++d) {
    const bool repeats = d < lead || (t.size(d - lead) == 1 && batch[d] != 1);
    strides[d] = repeats ? 0 : t.stride(d - lead);
  }
  return strides;
}

MatmulArgs ArgsOf(const Tensor& a, const Tensor& b, const Tensor& bias, const Shape& batch,
                  const Tensor& c) {
  MatmulArgs args{};
  args.m = a.size(-2);
  args.n = b.size(-1);
  args.k = a.size(-1);
  args.dtype = a.dtype();
  args.c_dtype = c.dtype();
  args.batch = batch;
  args.a = a.raw_data();
  args.a_row_stride = a.stride(-2);
  args.a_col_stride = a.stride(-1);
  args.b = b.raw_data();
  args.b_row_stride = b.stride(-2);
  args.b_col_stride = b.stride(-1);
  args.c = c.raw_data();
  args.c_row_stride = std::max(c.stride(-2), args.n);  // one row may have any stride
  args.bias = bias.defined() ? bias.raw_data() : nullptr;
  args.a_batch_strides = BatchStrides(a, batch);
  args.b_batch_strides = BatchStrides(b, batch);
  return args;
}

// Whether grouped_matmul_kernel and tree_matmul_kernel are there: the CPU alone has them. A table
// says yes to all of meta.
bool OnCpu(const Device& device) { return device.target == DeviceType::kCpu; }

// Whether `device` may have a kernel for a product with an epilogue, or one that adds; on meta by
// the target alone.
bool MayFuse(const Tensor& a, const Tensor& b) {
  const Device& device = a.device();
  return device.target == DeviceType::kCuda && fused_matmul_kernel.Supports(device) &&
         a.size(0) > 0 && a.size(1) > 0 && b.size(1) > 0;
}
bool MayFuseGelu(const Tensor& a, const Tensor& b) {
  // The library does not say how exact its tanh is: float32 takes ours.
  return MayFuse(a, b) && IsHalf(a.dtype()) && b.size(1) % kGeluAlignment == 0;
}

struct Fusion {
  ProductEpilogue epilogue = ProductEpilogue::kNone;
  bool accumulate = false;
  Tensor aux = Tensor();
  Tensor sums = Tensor();
};

// c = a b of two matrices as `fusion` says; false where there is no kernel for it after all.
bool RunFused(const Tensor& a, const Tensor& b, const Tensor& bias, const Fusion& fusion,
              const Tensor& c) {
  bool done = true;
  fused_matmul_kernel.Launch(a.device(),
                             {.product = ArgsOf(a, b, bias, Shape{}, c),
                              .epilogue = fusion.epilogue,
                              .accumulate = fusion.accumulate,
                              .aux = fusion.aux.defined() ? fusion.aux.raw_data() : nullptr,
                              .sums = fusion.sums.defined() ? fusion.sums.raw_data() : nullptr,
                              .done = &done});
  return done;
}

// From one row of AlignedProduct to the next.
int64_t AlignedRow(int64_t n, DType dtype, const Device& device) {
  constexpr int64_t kLeast = 1024;      // below this what follows is the longer part
  constexpr int64_t kVectorBytes = 16;  // of the copy engine's and of vector accesses
  constexpr int64_t kUnit = 64;
  const bool aligned = n * static_cast<int64_t>(DTypeSize(dtype)) % kVectorBytes == 0;
  if (device.target != DeviceType::kCuda || n < kLeast || aligned) return n;
  return (n + kUnit - 1) / kUnit * kUnit;
}

Tensor EmptyProduct(const Tensor& a, const Tensor& b, DType dtype) {
  return Empty({a.size(0), b.size(1)}, dtype, a.device());
}

}  // namespace

Tensor Product(const Tensor& a, const Tensor& b, const Tensor& bias, DType c_dtype) {
  const Shape batch = BroadcastShapes(BatchShape(a), BatchShape(b), "matmul");
  Shape shape = batch;
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  Tensor c = Empty(shape, c_dtype, a.device());
  if (c.numel() == 0) return c;
  matmul_kernel.Launch(a.device(), ArgsOf(a, b, bias, batch, c));
  return c;
}

Tensor AlignedProduct(const Tensor& a, const Tensor& b, const Tensor& bias, DType c_dtype) {
  const int64_t n = b.size(1);
  const int64_t row = AlignedRow(n, c_dtype, a.device());
  if (row == n || a.size(0) == 0) return Product(a, b, bias, c_dtype);
  const Tensor c =
      Empty({a.size(0), row}, c_dtype, a.device()).AsStrided({a.size(0), n}, {row, 1}, 0);
  matmul_kernel.Launch(a.device(), ArgsOf(a, b, bias, Shape{}, c));
  return c;
}

void AddProduct(const Tensor& a, const Tensor& b, const Tensor& c) {
  if (c.numel() == 0 || a.size(1) == 0) return;
  if (fused_matmul_kernel.Supports(a.device()) &&
      RunFused(a, b, Tensor(), {.accumulate = true}, c)) {
    return;
  }
  const Tensor product = Product(a, b, Tensor(), c.dtype());
  binary_kernel.Launch(c.device(), {.op = BinaryOp::kAdd,
                                    .dtype = c.dtype(),
                                    .shape = c.shape(),
                                    .a = c.raw_data(),
                                    .a_strides = c.strides(),
                                    .b = product.raw_data(),
                                    .b_strides = product.strides(),
                                    .out = c.raw_data()});
}

void SideBySide(const std::vector<OneProduct>& products) {
  if (products.empty()) return;
  GroupedMatmulArgs all;
  for (const OneProduct& p : products) {
    if (p.c.numel() > 0) all.products.push_back(ArgsOf(p.a, p.b, Tensor(), Shape{}, p.c));
  }
  const Device& device = products[0].a.device();
  if (OnCpu(device)) {
    grouped_matmul_kernel.Launch(device, all);
    return;
  }
  for (const MatmulArgs& args : all.products) matmul_kernel.Launch(device, args);
}

Tensor TreeProduct(const Tensor& a, const Tensor& b, const SumTree& tree) {
  const NoGrad no_grad;
  const DType dtype = AccumulateDType(a.dtype());
  Tensor c;
  if (a.size(1) == 0) {
    c = Full({a.size(0), b.size(1)}, -0.0, dtype, a.device());  // nothing that it adds to changes
  } else if (OnCpu(a.device())) {
    c = EmptyProduct(a, b, dtype);
    const TreeMatmulArgs args{ArgsOf(a, b, Tensor(), Shape{}, c), tree.leaves};
    if (c.numel() > 0) tree_matmul_kernel.Launch(a.device(), args);
  } else {
    std::vector<Tensor> terms;
    for (const std::vector<Share>& leaf : tree.leaves) {
      Tensor& term = terms.emplace_back();
      for (const Share& run : leaf) {
        const Tensor of_run = Product(Slice(a, 1, run.begin, run.count),
                                      Slice(b, 0, run.begin, run.count), Tensor(), dtype);
        if (term.defined()) AddInto(term, of_run);
        if (!term.defined()) term = of_run;
      }
    }
    c = SumOfLeaves(terms);
  }
  SumInTree(c, tree.group);
  return c;
}

ProductFactor::ProductFactor(const Tensor& b) : b_(b) {
  PackArgs args{b.size(1), b.size(0), b.dtype(), b.raw_data(), b.stride(0), b.stride(1), nullptr};
  const size_t bytes = pack_kernel.WorkspaceBytes(b.device().target, args);
  if (bytes == 0) return;
  const MemoryUseScope use(MemoryUse::kWorkspace);
  packed_ = Empty({static_cast<int64_t>(bytes)}, DType::kUInt8, b.device());
  args.packed = packed_.raw_data();
  // On meta the workspace is counted already.
  if (!b.device().is_meta()) pack_kernel.Launch(b.device(), args);
}

Tensor Product(const Tensor& a, const ProductFactor& b, const Tensor& bias, DType c_dtype) {
  Tensor c = EmptyProduct(a, b.b_, c_dtype);
  if (c.numel() == 0) return c;
  MatmulArgs args = ArgsOf(a, b.b_, bias, Shape{}, c);
  if (b.packed_.defined()) args.packed_b = b.packed_.raw_data();
  matmul_kernel.Launch(a.device(), args);
  return c;
}

Tensor Product(const Tensor& a, const Tensor& b) { return Product(a, b, Tensor(), a.dtype()); }

Tensor Transposed(const Tensor& t) { return Transpose(t, -1, -2); }

Tensor GeluOfProduct(const Tensor& a, const Tensor& b, const Tensor& bias, Tensor* input) {
  if (MayFuseGelu(a, b)) {
    const Tensor value = EmptyProduct(a, b, a.dtype());
    Fusion fusion{.epilogue = ProductEpilogue::kGelu};
    if (input != nullptr) fusion.aux = EmptyProduct(a, b, a.dtype());
    if (RunFused(a, b, bias, fusion, value)) {
      if (input != nullptr) *input = fusion.aux;
      return value;
    }
  }
  const NoGrad no_grad;
  Tensor sum = Product(a, b, bias, a.dtype());
  Tensor value = GeluTanh(sum);
  if (input != nullptr) *input = std::move(sum);
  return value;
}

Tensor ProductTimesGeluGrad(const Tensor& a, const Tensor& b, const Tensor& input) {
  const Tensor x = input.ContiguousCopy();
  if (MayFuseGelu(a, b)) {
    const Tensor c = EmptyProduct(a, b, a.dtype());
    if (RunFused(a, b, Tensor(), {.epilogue = ProductEpilogue::kGeluGrad, .aux = x}, c)) return c;
  }
  const Tensor c = Product(a, b);
  if (c.numel() == 0) return c;
  // Over the product: each element is read before it is written.
  binary_kernel.Launch(c.device(), {.op = BinaryOp::kGeluTanhGrad,
                                    .dtype = c.dtype(),
                                    .shape = c.shape(),
                                    .a = c.raw_data(),
                                    .a_strides = c.strides(),
                                    .b = x.raw_data(),
                                    .b_strides = x.strides(),
                                    .out = c.raw_data()});
  return c;
}

WeightGradient LinearWeightGradient(const Tensor& dy, const Tensor& x, LinearLayout layout,
                                    DType dtype, const Tensor& sum, bool needs_bias) {
  const bool out_in = layout == LinearLayout::kOutIn;
  const Tensor a = out_in ? Transposed(dy) : Transposed(x);
  const Tensor b = out_in ? x : dy;
  const bool fuses = MayFuse(a, b);
  const bool adds = fuses && sum.defined() && sum.is_contiguous() && sum.dtype() == dtype &&
                    sum.device() == a.device();
  WeightGradient gradient;
  bool product_done = false;
  const auto run = [&](Fusion fusion) {
    fusion.accumulate = adds;
    const Tensor c = adds ? sum : EmptyProduct(a, b, dtype);
    product_done = RunFused(a, b, Tensor(), fusion, c);
    if (!product_done) return;
    if (adds) {
      c.storage()->BumpVersion();
    } else {
      gradient.weight = c;
    }
  };
  if (fuses && needs_bias && dy.dtype() != DType::kFloat64) {
    const Tensor sums = Empty({dy.size(1)}, dtype, dy.device());
    run({.epilogue = out_in ? ProductEpilogue::kSumsOfA : ProductEpilogue::kSumsOfB, .sums = sums});
    if (product_done) gradient.bias = sums;
  }
  if (adds && !product_done) run({});
  if (!product_done) gradient.weight = Product(a, b, Tensor(), dtype);
  if (needs_bias && !gradient.bias.defined()) gradient.bias = SumTo(dy, {dy.size(1)});
  return gradient;
}

}  // namespace tessera
