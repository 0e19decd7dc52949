// SPDX-License-Identifier: Apache-2.0
#include "ops/view/view.h"

#include <algorithm>
#include <optional>

#include "autograd/autograd.h"
#include "ops/cast/autocast.h"

namespace tessera {
namespace {

// Strides with which x's elements, in row-major order, have `shape`; nullopt when a copy is needed.
std::optional<Shape> ReshapedStrides(const Tensor& x, const Shape& shape) {
  if (x.numel() == 0 || x.is_contiguous()) return ContiguousStrides(shape);
  // x's dims of size > 1, merged into runs that are contiguous among themselves.
  Shape sizes;
  Shape strides;
  for (int d = 0; d < x.ndim(); ++d) {
    if (x.size(d) == 1) continue;
    if (!sizes.empty() && strides[-1] == x.size(d) * x.stride(d)) {
      sizes[-1] *= x.size(d);
      strides[-1] = x.stride(d);
    } else {
      sizes.push_back(x.size(d));
      strides.push_back(x.stride(d));
    }
  }
  Shape result = shape;
  int run = sizes.ndim() - 1;
  int64_t left = run >= 0 ? sizes[run] : 1;
  int64_t stride = run >= 0 ? strides[run] : 1;
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    if (shape[d] != 1 && left == 1 && run > 0) {
      left = sizes[--run];
      stride = strides[run];
    }
    if (left % shape[d] != 0) return std::nullopt;
    result[d] = stride;
    stride *= shape[d];
    left /= shape[d];
  }
  return result;
}

// Adds grad into a zero tensor of `shape` along [begin, begin + grad.size(dim)) of dim.
Tensor EmbedSlice(const Tensor& grad, const Shape& shape, int dim, int64_t begin) {
  const Tensor whole = Zeros(shape, grad.dtype(), grad.device());
  CopyInto(Slice(whole, dim, begin, grad.size(dim)), grad);
  return whole;
}

// What `parts` are slices of along dim, one behind the other, where they lie so in memory;
// undefined where they do not. Undefined parts lie nowhere.
Tensor WholeOf(const std::vector<Tensor>& parts, const Shape& shape, DType dtype, int dim) {
  const Shape strides = ContiguousStrides(shape);
  int64_t begin = 0;
  for (const Tensor& part : parts) {
    const bool next = part.defined() && part.dtype() == dtype && part.strides() == strides &&
                      part.storage() == parts[0].storage() &&
                      part.offset() == parts[0].offset() + begin * strides[dim];
    if (!next) return Tensor();
    begin += part.size(dim);
  }
  return parts.empty() ? Tensor() : parts[0].AsStrided(shape, strides, parts[0].offset());
}

}  // namespace

Tensor Reshape(const Tensor& x, const Shape& requested) {
  Shape shape = requested;
  int inferred = -1;
  int64_t known = 1;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (shape[d] == -1) {
      TESSERA_CHECK(inferred < 0, "reshape", "more than one -1 in ", requested);
      inferred = d;
    } else {
      known *= shape[d];
    }
  }
  if (inferred >= 0) shape[inferred] = known == 0 ? 0 : x.numel() / known;
  TESSERA_CHECK(shape.numel() == x.numel(), "reshape", x, " has ", x.numel(),
                " elements, which do not fill ", requested);
  const std::optional<Shape> strides = ReshapedStrides(x, shape);
  const Tensor source = strides ? x : x.ContiguousCopy();
  Tensor y =
      source.AsStrided(shape, strides ? *strides : ContiguousStrides(shape), source.offset());
  if (AnyRequiresGrad({x})) {
    Record("reshape", {x}, {y},
           [from = x.shape()](GradContext& ctx) { ctx.set(0, Reshape(ctx.grad(), from)); });
  }
  return y;
}

Tensor Transpose(const Tensor& x, int dim0, int dim1) {
  std::vector<int> order(static_cast<size_t>(x.ndim()));
  for (int d = 0; d < x.ndim(); ++d) order[d] = d;
  std::swap(order[x.shape().Normalize(dim0, "transpose")],
            order[x.shape().Normalize(dim1, "transpose")]);
  return Permute(x, order);
}

Tensor Permute(const Tensor& x, const std::vector<int>& order) {
  TESSERA_CHECK(static_cast<int>(order.size()) == x.ndim(), "permute", order.size(),
                " dims given for ", x);
  Shape shape = x.shape();
  Shape strides = x.strides();
  std::vector<int> inverse(order.size(), -1);
  for (int d = 0; d < x.ndim(); ++d) {
    const int from = x.shape().Normalize(order[d], "permute");
    TESSERA_CHECK(inverse[from] < 0, "permute", "dim ", from, " is given twice for ", x);
    shape[d] = x.size(from);
    strides[d] = x.stride(from);
    inverse[from] = d;
  }
  Tensor y = x.AsStrided(shape, strides, x.offset());
  if (AnyRequiresGrad({x})) {
    Record("permute", {x}, {y},
           [inverse](GradContext& ctx) { ctx.set(0, Permute(ctx.grad(), inverse)); });
  }
  return y;
}

Tensor Slice(const Tensor& x, int dim, int64_t given_begin, int64_t length) {
  dim = x.shape().Normalize(dim, "slice");
  const int64_t begin = given_begin < 0 ? given_begin + x.size(dim) : given_begin;
  TESSERA_CHECK(begin >= 0 && length >= 0 && begin + length <= x.size(dim), "slice", length,
                " elements from ", given_begin, " on do not lie in dim ", dim, " of ", x);
  Shape shape = x.shape();
  shape[dim] = length;
  Tensor y = x.AsStrided(shape, x.strides(), x.offset() + begin * x.stride(dim));
  if (AnyRequiresGrad({x})) {
    Record("slice", {x}, {y}, [from = x.shape(), dim, begin](GradContext& ctx) {
      const Tensor sum = ctx.collected(0);
      if (sum.defined()) {
        AddInto(Slice(sum, dim, begin, ctx.grad().size(dim)), ctx.grad());
      } else {
        ctx.set(0, EmbedSlice(ctx.grad(), from, dim, begin));
      }
    });
  }
  return y;
}

Tensor Slice(const Tensor& x, int dim, int64_t begin) {
  dim = x.shape().Normalize(dim, "slice");
  const int64_t first = begin < 0 ? begin + x.size(dim) : begin;
  TESSERA_CHECK(first >= 0 && first <= x.size(dim), "slice", "place ", begin, " of dim ", dim,
                " of ", x, ", which has ", x.size(dim));
  return Slice(x, dim, begin, x.size(dim) - first);
}

Tensor SliceTo(const Tensor& x, int dim, int64_t begin, int64_t end) {
  const int64_t size = x.size(x.shape().Normalize(dim, "slice"));
  const auto place = [size](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const int64_t first = place(begin);
  return Slice(x, dim, first, std::max<int64_t>(place(end) - first, 0));
}

Tensor Select(const Tensor& x, int dim, int64_t at) {
  dim = x.shape().Normalize(dim, "select");
  TESSERA_CHECK(at >= -x.size(dim) && at < x.size(dim), "select", "place ", at, " of dim ", dim,
                " of ", x, ", which has ", x.size(dim));
  return Squeeze(Slice(x, dim, at, 1), dim);
}

Tensor Unsqueeze(const Tensor& x, int dim) {
  const int at = dim < 0 ? dim + x.ndim() + 1 : dim;
  TESSERA_CHECK(at >= 0 && at <= x.ndim(), "unsqueeze", "dim ", dim, " of ", x,
                ": a new one is at ", -x.ndim() - 1, " to ", x.ndim());
  Shape shape = x.shape();
  shape.insert(at, 1);
  return Reshape(x, shape);
}

Tensor Squeeze(const Tensor& x, int dim) {
  Shape shape = x.shape();
  TESSERA_CHECK(shape[dim] == 1, "squeeze", "dim ", dim, " of ", x, " is not of size 1");
  shape.erase(dim);
  return Reshape(x, shape);
}

Tensor Contiguous(const Tensor& x) {
  if (x.is_contiguous()) return x;
  Tensor y = x.ContiguousCopy();
  if (AnyRequiresGrad({x})) {
    Record("contiguous", {x}, {y}, [](GradContext& ctx) { ctx.set(0, ctx.grad()); });
  }
  return y;
}

Tensor Detach(const Tensor& x) { return x.Detach(); }

Tensor Cat(const std::vector<Tensor>& given, int dim) {
  TESSERA_CHECK(!given.empty(), "cat", "no tensors");
  std::vector<Tensor> tensors = given;
  if (std::any_of(given.begin(), given.end(),
                  [&](const Tensor& t) { return t.dtype() != given[0].dtype(); })) {
    for (Tensor& t : tensors) t = ForSum(t);
  }
  dim = tensors[0].shape().Normalize(dim, "cat");
  Shape shape = tensors[0].shape();
  shape[dim] = 0;
  std::vector<int64_t> sizes;
  for (const Tensor& t : tensors) {
    Shape rest = t.shape();
    TESSERA_CHECK(rest.ndim() == shape.ndim(), "cat", tensors[0], " and ", t,
                  " differ in their numbers of dimensions");
    sizes.push_back(rest[dim]);
    rest[dim] = shape[dim];
    TESSERA_CHECK(
        rest == shape && t.dtype() == tensors[0].dtype() && t.device() == tensors[0].device(),
        "cat", tensors[0], " and ", t, " along dim ", dim,
        ": other dimensions and the device must be equal");
    shape[dim] += sizes.back();
  }
  Tensor y = Empty(shape, tensors[0].dtype(), tensors[0].device());
  int64_t begin = 0;
  for (const Tensor& t : tensors) {
    CopyInto(Slice(y, dim, begin, t.size(dim)), t.Detach());
    begin += t.size(dim);
  }
  if (AnyRequiresGrad(tensors)) {
    Record("cat", tensors, {y}, [sizes, dim](GradContext& ctx) {
      int64_t from = 0;
      for (size_t i = 0; i < sizes.size(); ++i) {
        if (ctx.needs(static_cast<int>(i))) {
          ctx.set(static_cast<int>(i), Slice(ctx.grad(), dim, from, sizes[i]));
        }
        from += sizes[i];
      }
    });
  }
  return y;
}

Tensor Stack(const std::vector<Tensor>& tensors, int dim) {
  TESSERA_CHECK(!tensors.empty(), "stack", "no tensors");
  std::vector<Tensor> expanded;
  expanded.reserve(tensors.size());
  for (const Tensor& t : tensors) {
    TESSERA_CHECK(t.shape() == tensors[0].shape(), "stack", tensors[0], " and ", t,
                  " differ in shape");
    expanded.push_back(Unsqueeze(t, dim));
  }
  return Cat(expanded, dim < 0 ? dim + expanded[0].ndim() : dim);
}

std::vector<Tensor> Split(const Tensor& x, const std::vector<int64_t>& sizes, int dim) {
  dim = x.shape().Normalize(dim, "split");
  int64_t total = 0;
  for (int64_t size : sizes) total += size;
  TESSERA_CHECK(total == x.size(dim), "split", "sizes add up to ", total, " along dim ", dim,
                " of ", x);
  std::vector<Tensor> parts;
  std::vector<int64_t> begins;
  {
    const NoGrad no_grad;
    int64_t begin = 0;
    for (int64_t size : sizes) {
      parts.push_back(Slice(x, dim, begin, size));
      begins.push_back(begin);
      begin += size;
    }
  }
  if (AnyRequiresGrad({x})) {
    // One node for all parts: their gradients fill one tensor, unless they do already (as those of
    // attention's packed operands).
    Record("split", {x}, parts,
           [sizes, begins, dim, like = x.shape(), dtype = x.dtype(),
            device = x.device()](GradContext& ctx) {
             std::vector<Tensor> grads;
             for (size_t i = 0; i < sizes.size(); ++i) {
               grads.push_back(ctx.grad(static_cast<int>(i)));
             }
             Tensor whole = WholeOf(grads, like, dtype, dim);
             if (!whole.defined()) {
               whole = Empty(like, dtype, device);
               for (size_t i = 0; i < sizes.size(); ++i) {
                 const Tensor part = Slice(whole, dim, begins[i], sizes[i]);
                 if (grads[i].defined()) {
                   CopyInto(part, grads[i]);
                 } else {
                   Fill(part, 0.0);
                 }
               }
             }
             ctx.set(0, whole);
           });
  }
  return parts;
}

std::vector<Tensor> Chunk(const Tensor& x, int64_t chunks, int dim) {
  TESSERA_CHECK(chunks > 0, "chunk", chunks, " chunks of ", x);
  int64_t left = x.size(dim);
  const int64_t size = (left + chunks - 1) / chunks;
  std::vector<int64_t> sizes = {std::min(size, left)};
  for (left -= sizes[0]; left > 0; left -= sizes.back()) sizes.push_back(std::min(size, left));
  return Split(x, sizes, dim);
}

Tensor Pad(const Tensor& x, int dim, int64_t before, int64_t after, double value) {
  dim = x.shape().Normalize(dim, "pad");
  TESSERA_CHECK(before >= 0 && after >= 0, "pad", "negative padding of ", x);
  Shape shape = x.shape();
  shape[dim] += before + after;
  Tensor y = Full(shape, value, x.dtype(), x.device());
  CopyInto(Slice(y, dim, before, x.size(dim)), x.Detach());
  if (AnyRequiresGrad({x})) {
    Record("pad", {x}, {y}, [dim, before, length = x.size(dim)](GradContext& ctx) {
      ctx.set(0, Slice(ctx.grad(), dim, before, length));
    });
  }
  return y;
}

}  // namespace tessera
