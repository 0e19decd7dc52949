// SPDX-License-Identifier: Apache-2.0
#include "ops/reduction/reduction.h"

#include <algorithm>
#include <cmath>

#include "autograd/autograd.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/reduction_kernel.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

struct Extreme {
  Tensor values;   // with dim kept as 1
  Tensor indices;  // int64, likewise
};

Extreme FindExtreme(const Tensor& x, int dim, bool largest, const char* name) {
  TESSERA_CHECK(x.size(dim) > 0, name, "dim ", dim, " of ", x, " is empty");
  ExtremeArgs args{x.dtype(), 1, x.size(dim), 1, nullptr, largest, nullptr, nullptr};
  Shape shape = x.shape();
  shape[dim] = 1;
  for (int d = 0; d < dim; ++d) args.outer *= x.size(d);
  for (int d = dim + 1; d < x.ndim(); ++d) args.inner *= x.size(d);
  const Tensor contiguous = x.ContiguousCopy();
  Extreme result{Empty(shape, x.dtype(), x.device()), Empty(shape, DType::kInt64, x.device())};
  if (result.values.numel() == 0) return result;
  args.x = contiguous.raw_data();
  args.values = result.values.raw_data();
  args.indices = static_cast<int64_t*>(result.indices.raw_data());
  extreme_kernel.Launch(x.device(), args);
  return result;
}

Tensor ExtremeAlong(const Tensor& x, int dim, bool keep_dim, bool largest, const char* name) {
  dim = x.shape().Normalize(dim, name);
  const Extreme found = FindExtreme(x, dim, largest, name);
  Shape shape = found.values.shape();
  if (!keep_dim) shape.erase(dim);
  Tensor y = Reshape(found.values, shape);
  if (AnyRequiresGrad({x})) {
    Record(name, {x}, {y}, [indices = found.indices, from = x.shape(), dim](GradContext& ctx) {
      Shape along = from;
      for (int d = 0; d < along.ndim(); ++d) along[d] = d == dim ? from[dim] : 1;
      const Tensor position = Reshape(Arange(from[dim], indices.device()), along);
      const Tensor hit = Compare(position, indices, Comparison::kEqual);
      const Tensor zero = Zeros({1}, ctx.grad().dtype(), ctx.grad().device());
      ctx.set(0, Where(hit, Reshape(ctx.grad(), indices.shape()), zero));
    });
  }
  return y;
}

Tensor ExtremePlace(const Tensor& x, int dim, bool keep_dim, bool largest, const char* name) {
  dim = x.shape().Normalize(dim, name);
  const Tensor indices = FindExtreme(x, dim, largest, name).indices;
  return keep_dim ? indices : Squeeze(indices, dim);
}

}  // namespace

// In float32 of half precision, whose sums would overflow and be rounded before the division.
Tensor Mean(const Tensor& given, const std::vector<int>& dims, bool keep_dims) {
  TESSERA_CHECK(IsFloating(given.dtype()), "mean", "a floating dtype is needed, got ", given);
  const Tensor x = Cast(given, AccumulateDType(given.dtype()));
  const Tensor sum = Sum(x, dims, keep_dims);
  const double count =
      sum.numel() == 0 ? 1 : static_cast<double>(x.numel()) / static_cast<double>(sum.numel());
  return Cast(Mul(sum, 1.0 / count), given.dtype());
}

Tensor Var(const Tensor& given, const std::vector<int>& dims, const VarOptions& options) {
  TESSERA_CHECK(IsFloating(given.dtype()), "var", "a floating dtype is needed, got ", given);
  const Tensor x = Cast(given, AccumulateDType(given.dtype()));
  const Tensor squares = Sum(Square(Sub(x, Mean(x, dims, true))), dims, options.keep_dims);
  const double count = squares.numel() == 0
                           ? 1
                           : static_cast<double>(x.numel()) / static_cast<double>(squares.numel());
  return Cast(Div(squares, std::max(count - options.correction, 0.0)), given.dtype());
}

Tensor Max(const Tensor& x, int dim, bool keep_dim) {
  return ExtremeAlong(x, dim, keep_dim, true, "max");
}

Tensor Min(const Tensor& x, int dim, bool keep_dim) {
  return ExtremeAlong(x, dim, keep_dim, false, "min");
}

Tensor ArgMax(const Tensor& x, int dim, bool keep_dim) {
  return ExtremePlace(x, dim, keep_dim, true, "argmax");
}

Tensor ArgMin(const Tensor& x, int dim, bool keep_dim) {
  return ExtremePlace(x, dim, keep_dim, false, "argmin");
}

Tensor LogSumExp(const Tensor& x, int dim, bool keep_dim) {
  dim = x.shape().Normalize(dim, "logsumexp");
  // The maximum is a constant of the computation; where it is infinite, shifting would give NaN.
  Tensor shift = FindExtreme(x, dim, true, "logsumexp").values;
  const Tensor finite = Compare(Abs(shift), HUGE_VAL, Comparison::kLess);
  shift = Where(finite, shift, Zeros({1}, x.dtype(), x.device()));
  const Tensor y = Add(Log(Sum(Exp(Sub(x, shift)), {dim}, true)), shift);
  return keep_dim ? y : Squeeze(y, dim);
}

}  // namespace tessera
