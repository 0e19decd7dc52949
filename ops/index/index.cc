// SPDX-License-Identifier: Apache-2.0
#include "ops/index/index.h"

#include "autograd/autograd.h"
#include "ops/index/index_kernel.h"
#include "ops/index/put_workspace.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

TESSERA_REGISTER_WORKSPACE(put_kernel, DeviceType::kCuda, PutWorkspace);

const int64_t* Ids(const Tensor& indices) {
  return static_cast<const int64_t*>(indices.raw_data());
}

void CheckIndices(const char* name, const Tensor& indices, const Tensor& x, int64_t size) {
  TESSERA_CHECK(indices.dtype() == DType::kInt64 && indices.device() == x.device(), name,
                "indices ", indices, " into ", x, " must be int64, on its device");
  if (!indices.device().is_cpu()) return;
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const int64_t at = Ids(indices)[i];
    TESSERA_CHECK(at >= 0 && at < size, name, "index ", at, " at position ", i,
                  " is outside of [0, ", size, ")");
  }
}

// x seen as [outer, size(dim), inner].
template <typename Args>
void SetDims(const Tensor& x, int dim, Args& args) {
  args.outer = 1;
  args.inner = 1;
  args.size = x.size(dim);
  for (int d = 0; d < dim; ++d) args.outer *= x.size(d);
  for (int d = dim + 1; d < x.ndim(); ++d) args.inner *= x.size(d);
}

DType GradDTypeFor(const Tensor& x) { return IsLeaf(x) ? GradDType(x) : x.dtype(); }

// Both look-ups: slices `indices` of x, zeros for those outside of [begin, begin + size). Index
// `skip` gets no gradient.
Tensor Take(const char* name, const Tensor& x, int dim, const Tensor& indices, int64_t begin,
            int64_t skip = -1) {
  const Tensor xc = x.ContiguousCopy();
  const Tensor ids = indices.ContiguousCopy();
  TakeArgs args{};
  SetDims(x, dim, args);
  args.dtype = x.dtype();
  args.count = ids.numel();
  args.begin = begin;
  Shape shape;
  for (int d = 0; d < dim; ++d) shape.push_back(x.size(d));
  for (int64_t size : ids.shape()) shape.push_back(size);
  for (int d = dim + 1; d < x.ndim(); ++d) shape.push_back(x.size(d));
  Tensor y = Empty(shape, x.dtype(), x.device());
  if (y.numel() > 0) {
    args.x = xc.raw_data();
    args.indices = Ids(ids);
    args.out = y.raw_data();
    take_kernel.Launch(x.device(), args);
  }
  if (AnyRequiresGrad({x})) {
    Record(name, {x}, {y},
           [ids = SavedTensor(ids), args, from = x.shape(), skip,
            dtype = GradDTypeFor(x)](GradContext& ctx) {
             const Tensor at = ids.Unpack();
             const Tensor grad = ctx.grad().ContiguousCopy();
             // Summed in float32 and rounded once. A sum of its own, even where the table has a
             // gradient already, so that the bits do not depend on who adds.
             const Tensor dx = Zeros(from, AccumulateDType(dtype), grad.device());
             if (grad.numel() > 0) {
               put_kernel.Launch(grad.device(), {.x_dtype = dx.dtype(),
                                                 .grad_dtype = grad.dtype(),
                                                 .outer = args.outer,
                                                 .size = args.size,
                                                 .inner = args.inner,
                                                 .count = args.count,
                                                 .begin = args.begin,
                                                 .x = dx.raw_data(),
                                                 .indices = Ids(at),
                                                 .grad = grad.raw_data(),
                                                 .skip = skip});
             }
             ctx.set(0, dx.dtype() == dtype ? dx : CastCopy(dx, dtype));
           });
  }
  return y;
}

GatherArgs PickArgs(const Tensor& x, int dim, const Tensor& index, const Tensor& picked) {
  GatherArgs args{};
  SetDims(x, dim, args);
  args.dtype = x.dtype();
  args.count = index.size(dim);
  args.x = x.raw_data();
  args.index = Ids(index);
  args.picked = picked.raw_data();
  return args;
}

// The part of x that `index` reaches: all of dim, and its first elements along the others.
Tensor Reached(const char* name, const Tensor& x, int dim, const Tensor& index) {
  bool fits = index.ndim() == x.ndim();
  for (int d = 0; fits && d < x.ndim(); ++d) fits = d == dim || index.size(d) <= x.size(d);
  TESSERA_CHECK(fits, name, "index ", index, " for ", x, " along dim ", dim,
                ": as many dims are needed, and no larger sizes but along it");
  CheckIndices(name, index, x, x.size(dim));
  Tensor part = x;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d != dim && index.size(d) < x.size(d)) part = Slice(part, d, 0, index.size(d));
  }
  return part;
}

// What elements of `dtype` are added up in: whole numbers in int64, which wraps.
DType SumDType(DType dtype) { return IsFloating(dtype) ? AccumulateDType(dtype) : DType::kInt64; }

// dst (contiguous, a dtype of sums) += src at index.
void AddAt(const Tensor& dst, int dim, const Tensor& index, const Tensor& src) {
  if (src.numel() == 0) return;
  scatter_add_kernel.Launch(dst.device(), PickArgs(dst, dim, index, src));
}

}  // namespace

Tensor IndexSelect(const Tensor& x, int dim, const Tensor& indices) {
  dim = x.shape().Normalize(dim, "index_select");
  CheckIndices("index_select", indices.ContiguousCopy(), x, x.size(dim));
  return Take("index_select", x, dim, indices, 0);
}

Tensor Embedding(const Tensor& weight, const Tensor& ids, const EmbeddingOptions& options) {
  TESSERA_CHECK(weight.ndim() == 2 && IsFloating(weight.dtype()), "embedding", "the table is ",
                weight, ", not [rows, width] of a floating dtype");
  const int64_t vocab = options.global_vocab >= 0 ? options.global_vocab : weight.size(0);
  TESSERA_CHECK(options.padding_idx >= -1 && options.padding_idx < vocab, "embedding",
                "padding_idx ", options.padding_idx, " is none of ", vocab,
                " rows; -1 is no padding");
  CheckIndices("embedding", ids.ContiguousCopy(), weight, vocab);
  return Take("embedding", weight, 0, ids, options.vocab_begin, options.padding_idx);
}

Tensor Gather(const Tensor& source, int dim, const Tensor& index) {
  dim = source.shape().Normalize(dim, "gather");
  const Tensor at = index.ContiguousCopy();
  const Tensor x = Reached("gather", source, dim, at);
  const Tensor xc = x.ContiguousCopy();
  Tensor y = Empty(at.shape(), x.dtype(), x.device());
  if (y.numel() > 0) gather_kernel.Launch(x.device(), PickArgs(xc, dim, at, y));
  if (AnyRequiresGrad({x})) {
    Record("gather", {x}, {y}, [at = SavedTensor(at), dim, from = x.shape()](GradContext& ctx) {
      const Tensor grad = ctx.grad().ContiguousCopy();
      const DType wide = AccumulateDType(grad.dtype());
      const Tensor dx = Zeros(from, wide, grad.device());
      AddAt(dx, dim, at.Unpack(), grad.dtype() == wide ? grad : CastCopy(grad, wide));
      ctx.set(0, grad.dtype() == wide ? dx : CastCopy(dx, grad.dtype()));
    });
  }
  return y;
}

Tensor ScatterAdd(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  dim = x.shape().Normalize(dim, "scatter_add");
  const Tensor at = index.ContiguousCopy();
  TESSERA_CHECK(src.shape() == index.shape() && src.dtype() == x.dtype() &&
                    x.dtype() != DType::kBool && src.device() == x.device(),
                "scatter_add", "source ", src, " for index ", index, " into ", x,
                ": it must have the index's shape and x's dtype, of numbers");
  const DType wide = SumDType(x.dtype());
  const Tensor sum = CastCopy(x.Detach(), wide);
  const Tensor part = Reached("scatter_add", sum, dim, at);
  const Tensor added = part.ContiguousCopy();
  AddAt(added, dim, at, CastCopy(src.Detach(), wide));
  if (added.storage() != sum.storage()) CopyInto(part, added);
  Tensor y = x.dtype() == wide ? sum : CastCopy(sum, x.dtype());
  if (AnyRequiresGrad({x, src})) {
    Record("scatter_add", {x, src}, {y}, [at = SavedTensor(at), dim](GradContext& ctx) {
      if (ctx.needs(0)) ctx.set(0, ctx.grad());
      if (ctx.needs(1)) ctx.set(1, Gather(ctx.grad(), dim, at.Unpack()));
    });
  }
  return y;
}

Tensor IndexAdd(const Tensor& x, int dim, const Tensor& indices, const Tensor& src) {
  dim = x.shape().Normalize(dim, "index_add");
  TESSERA_CHECK(indices.ndim() == 1, "index_add", "indices of one dim are needed, got ", indices);
  Shape expected = x.shape();
  expected[dim] = indices.size(0);
  TESSERA_CHECK(src.shape() == expected && src.dtype() == x.dtype() && x.dtype() != DType::kBool &&
                    src.device() == x.device(),
                "index_add", "source ", src, " for ", indices.size(0), " indices along dim ", dim,
                " of ", x, ": it must have shape ", expected,
                " and x's device and dtype, of numbers");
  const Tensor at = indices.ContiguousCopy();
  CheckIndices("index_add", at, x, x.size(dim));
  if (!IsFloating(x.dtype())) {
    Shape along = expected;
    for (int d = 0; d < x.ndim(); ++d) along[d] = d == dim ? 1 : 0;
    return ScatterAdd(x, dim, at.AsStrided(expected, along, at.offset()), src);
  }
  const DType wide = AccumulateDType(x.dtype());
  const Tensor sum = CastCopy(x.Detach(), wide);
  const Tensor added = src.Detach().ContiguousCopy();
  if (added.numel() > 0) {
    PutArgs args{.x_dtype = wide,
                 .grad_dtype = added.dtype(),
                 .outer = 1,
                 .size = 1,
                 .inner = 1,
                 .count = at.numel(),
                 .begin = 0,
                 .x = sum.raw_data(),
                 .indices = Ids(at),
                 .grad = added.raw_data(),
                 .skip = -1};
    SetDims(x, dim, args);
    put_kernel.Launch(x.device(), args);
  }
  Tensor y = x.dtype() == wide ? sum : CastCopy(sum, x.dtype());
  if (AnyRequiresGrad({x, src})) {
    Record("index_add", {x, src}, {y}, [at = SavedTensor(at), dim](GradContext& ctx) {
      if (ctx.needs(0)) ctx.set(0, ctx.grad());
      if (ctx.needs(1)) ctx.set(1, IndexSelect(ctx.grad(), dim, at.Unpack()));
    });
  }
  return y;
}

Tensor OneHot(const Tensor& indices, int64_t classes, DType dtype) {
  TESSERA_CHECK(classes >= 0, "one_hot", classes, " classes");
  const Tensor at = indices.ContiguousCopy();
  Shape shape = at.shape();
  shape.push_back(classes);
  const Tensor y = Zeros(shape, DType::kFloat32, at.device());
  CheckIndices("one_hot", at, y, classes);
  shape[-1] = 1;
  const Tensor column = at.AsStrided(shape, ContiguousStrides(shape), at.offset());
  AddAt(y, shape.ndim() - 1, column, Full(shape, 1.0, DType::kFloat32, at.device()));
  return CastCopy(y, dtype);
}

}  // namespace tessera
