// SPDX-License-Identifier: Apache-2.0
#include "ops/rearrange/rearrange.h"

#include "autograd/autograd.h"
#include "ops/along_dim.h"
#include "ops/elementwise/elementwise.h"
#include "ops/index/index.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// x, seen as [before, rest], with each row of `rest` repeated, and of the given shape at last.
Tensor RepeatRows(const Tensor& x, int64_t before, int64_t repeats, const Shape& shape) {
  const int64_t rest = before == 0 ? 0 : x.numel() / before;
  const Tensor rows = Reshape(x, {before, 1, rest});
  return Reshape(BroadcastTo(rows, {before, repeats, rest}), shape);
}

Tensor Reversed(const Tensor& x, const std::vector<int>& dims) {
  Tensor y = x;
  for (const int dim : dims) {
    const int64_t last = x.size(dim) - 1;
    y = IndexSelect(y, dim, static_cast<double>(last) - Arange(x.size(dim), x.device()));
  }
  return y.is_same(x) ? Detach(x) : y;
}

}  // namespace

Tensor Repeat(const Tensor& x, const std::vector<int64_t>& repeats) {
  const int lead = static_cast<int>(repeats.size()) - x.ndim();
  TESSERA_CHECK(lead >= 0, "repeat", repeats.size(), " repeats for ", x);
  Tensor y = x;
  for (int d = 0; d < lead; ++d) y = Unsqueeze(y, 0);
  for (int d = 0; d < y.ndim(); ++d) {
    const int64_t times = repeats[static_cast<size_t>(d)];
    TESSERA_CHECK(times >= 0, "repeat", times, " times along dim ", d, " of ", x);
    if (times == 1) continue;
    Shape shape = y.shape();
    shape[d] *= times;
    y = RepeatRows(y, AlongDim(y.shape(), d).outer, times, shape);
  }
  return y.is_same(x) ? Contiguous(Reshape(x, x.shape())) : y;
}

Tensor RepeatInterleave(const Tensor& x, int64_t repeats, int dim) {
  dim = x.shape().Normalize(dim, "repeat_interleave");
  TESSERA_CHECK(repeats >= 0, "repeat_interleave", repeats, " times along dim ", dim, " of ", x);
  Shape shape = x.shape();
  shape[dim] *= repeats;
  const AlongDim along(x.shape(), dim);
  return RepeatRows(x, along.outer * along.count, repeats, shape);
}

Tensor Flip(const Tensor& x, const std::vector<int>& dims) {
  std::vector<int> flipped;
  std::vector<bool> seen(static_cast<size_t>(x.ndim()));
  for (const int given : dims) {
    const int dim = x.shape().Normalize(given, "flip");
    TESSERA_CHECK(!seen[dim], "flip", "dim ", dim, " is given twice for ", x);
    seen[dim] = true;
    flipped.push_back(dim);
  }
  Tensor y;
  {
    const NoGrad no_grad;
    y = Reversed(x, flipped);
  }
  if (AnyRequiresGrad({x})) {
    Record("flip", {x}, {y},
           [flipped](GradContext& ctx) { ctx.set(0, Reversed(ctx.grad(), flipped)); });
  }
  return y;
}

Tensor Roll(const Tensor& x, int64_t shift, int dim) {
  dim = x.shape().Normalize(dim, "roll");
  const int64_t size = x.size(dim);
  // How many of the last ones come first.
  const int64_t moved = size == 0 ? 0 : (shift % size + size) % size;
  return Cat({Slice(x, dim, size - moved, moved), Slice(x, dim, 0, size - moved)}, dim);
}

}  // namespace tessera
