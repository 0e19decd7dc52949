// SPDX-License-Identifier: Apache-2.0
#include "ops/reduction/sum.h"

#include <algorithm>
#include <vector>

#include "autograd/autograd.h"
#include "ops/reduction/reduction_kernel.h"
#include "ops/reduction/sum_chunks.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

TESSERA_REGISTER_WORKSPACE(sum_kernel, DeviceType::kCuda, SumWorkspace);

// Sums dims [first, last] of a contiguous copy away (they must be adjacent), keeping them as 1.
Tensor SumAdjacent(const Tensor& x, int first, int last) {
  SumArgs args{x.dtype(), 1, 1, 1, nullptr, nullptr};
  Shape shape = x.shape();
  for (int d = 0; d < x.ndim(); ++d) {
    (d < first ? args.outer : d <= last ? args.count : args.inner) *= x.size(d);
    if (d >= first && d <= last) shape[d] = 1;
  }
  const Tensor contiguous = x.ContiguousCopy();
  Tensor out = Empty(shape, x.dtype(), x.device());
  if (out.numel() == 0) return out;
  if (args.count == 0) {
    Fill(out, 0.0);
    return out;
  }
  args.x = contiguous.raw_data();
  args.out = out.raw_data();
  sum_kernel.Launch(x.device(), args);
  return out;
}

Tensor ViewAs(const Tensor& contiguous, const Shape& shape) {
  return contiguous.AsStrided(shape, ContiguousStrides(shape), contiguous.offset());
}

// In one pass, over a copy in which the flagged dims are behind the others.
Tensor SumTogether(const Tensor& x, const std::vector<bool>& reduced) {
  Shape sums = x.shape();
  Shape shape;
  Shape strides;
  int kept = 0;
  for (const bool flag : {false, true}) {
    for (int d = 0; d < x.ndim(); ++d) {
      if (reduced[d] != flag) continue;
      shape.push_back(x.size(d));
      strides.push_back(x.stride(d));
      if (flag) {
        sums[d] = 1;
      } else {
        ++kept;
      }
    }
  }
  return ViewAs(SumAdjacent(x.AsStrided(shape, strides, x.offset()), kept, x.ndim() - 1), sums);
}

// Whether the flagged dims are not all adjacent.
bool LieApart(const std::vector<bool>& reduced) {
  const auto first = std::find(reduced.begin(), reduced.end(), true);
  const auto after = std::find(first, reduced.end(), false);
  return std::find(after, reduced.end(), true) != reduced.end();
}

// Sums the flagged dims, keeping them as 1; adjacent ones together, the last ones first. Half
// precision takes one pass: sums between two would be rounded, and overflow.
Tensor SumDims(const Tensor& x, const std::vector<bool>& reduced) {
  if (IsHalf(x.dtype()) && LieApart(reduced)) return SumTogether(x, reduced);
  Tensor y = x;
  for (int last = x.ndim() - 1; last >= 0; --last) {
    if (!reduced[last]) continue;
    int first = last;
    while (first > 0 && reduced[first - 1]) --first;
    y = SumAdjacent(y, first, last);
    last = first;
  }
  return y;
}

std::vector<bool> Flags(const Tensor& x, const std::vector<int>& dims) {
  std::vector<bool> flags(static_cast<size_t>(x.ndim()), dims.empty());
  for (const int given : dims) {
    const int dim = x.shape().Normalize(given, "sum");
    TESSERA_CHECK(!flags[dim], "sum", "dim ", dim, " is given twice for ", x);
    flags[dim] = true;
  }
  return flags;
}

Shape WithoutDims(const Shape& shape, const std::vector<bool>& reduced) {
  Shape rest;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (!reduced[d]) rest.push_back(shape[d]);
  }
  return rest;
}

}  // namespace

Tensor Sum(const Tensor& given, const std::vector<int>& dims, bool keep_dims) {
  const bool narrow = !IsFloating(given.dtype()) && given.dtype() != DType::kInt64;
  const Tensor x = narrow ? CastCopy(given, DType::kInt64) : given;
  const std::vector<bool> reduced = Flags(x, dims);
  Tensor kept = SumDims(x, reduced);
  if (kept.is_same(x)) kept = x.Detach();
  const Shape kept_shape = kept.shape();
  Tensor y = keep_dims ? kept : ViewAs(kept.ContiguousCopy(), WithoutDims(kept_shape, reduced));
  if (AnyRequiresGrad({x})) {
    Record("sum", {x}, {y}, [from = x.shape(), kept_shape](GradContext& ctx) {
      ctx.set(0, BroadcastTo(Reshape(ctx.grad(), kept_shape), from));
    });
  }
  return y;
}

Tensor BroadcastTo(const Tensor& x, const Shape& shape) {
  const int lead = shape.ndim() - x.ndim();
  TESSERA_CHECK(lead >= 0, "broadcast_to", x, " to ", shape);
  Shape strides = shape;
  for (int d = 0; d < shape.ndim(); ++d) {
    const int64_t size = d < lead ? 1 : x.size(d - lead);
    TESSERA_CHECK(size == shape[d] || size == 1, "broadcast_to", x, " to ", shape);
    strides[d] = d < lead || size != shape[d] ? 0 : x.stride(d - lead);
  }
  Tensor y = x.AsStrided(shape, strides, x.offset());
  if (AnyRequiresGrad({x})) {
    Record("broadcast_to", {x}, {y},
           [from = x.shape()](GradContext& ctx) { ctx.set(0, SumTo(ctx.grad(), from)); });
  }
  return y;
}

Tensor SumTo(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  TESSERA_CHECK(BroadcastShapes(shape, x.shape(), "sum_to") == x.shape(), "sum_to", x, " to ",
                shape);
  const int lead = x.ndim() - shape.ndim();
  std::vector<bool> reduced(static_cast<size_t>(x.ndim()));
  for (int d = 0; d < x.ndim(); ++d) {
    reduced[d] = d < lead || (shape[d - lead] == 1 && x.size(d) != 1);
  }
  Tensor y = ViewAs(SumDims(x, reduced).ContiguousCopy(), shape);
  if (AnyRequiresGrad({x})) {
    Record("sum_to", {x}, {y},
           [from = x.shape()](GradContext& ctx) { ctx.set(0, BroadcastTo(ctx.grad(), from)); });
  }
  return y;
}

}  // namespace tessera
