// SPDX-License-Identifier: Apache-2.0
#include "ops/dropout/dropout.h"

#include "autograd/autograd.h"
#include "ops/dropout/dropout_kernel.h"

namespace tessera {
namespace {

Tensor Apply(const Tensor& x, const DropoutOptions& options, const Shape& global_strides,
             int64_t global_offset) {
  Tensor y = Empty(x.shape(), x.dtype(), x.device());
  if (y.numel() == 0) return y;
  const Tensor xc = x.ContiguousCopy();
  dropout_kernel.Launch(x.device(), {.dtype = x.dtype(),
                                     .shape = x.shape(),
                                     .global_strides = global_strides,
                                     .global_offset = global_offset,
                                     .p = options.p,
                                     .key = options.key,
                                     .x = xc.raw_data(),
                                     .out = y.raw_data()});
  return y;
}

}  // namespace

Tensor Dropout(const Tensor& x, const DropoutOptions& options) {
  TESSERA_CHECK(options.p >= 0 && options.p < 1, "dropout", "p = ", options.p, " is not in [0, 1)");
  TESSERA_CHECK(IsFloating(x.dtype()), "dropout", "a floating dtype is needed, got ", x);
  if (options.p == 0) return x;
  const Shape global = options.global_shape.empty() ? x.shape() : options.global_shape;
  TESSERA_CHECK(
      global.ndim() == x.ndim() && (options.begin.empty() || options.begin.ndim() == x.ndim()),
      "dropout", x, " is not a box of ", global);
  const Shape strides = ContiguousStrides(global);
  int64_t offset = 0;
  for (int d = 0; d < x.ndim(); ++d) {
    const int64_t begin = options.begin.empty() ? 0 : options.begin[d];
    TESSERA_CHECK(begin >= 0 && begin + x.size(d) <= global[d], "dropout", x, " at ", options.begin,
                  " is not a box of ", global);
    offset += begin * strides[d];
  }
  Tensor y = Apply(x, options, strides, offset);
  if (AnyRequiresGrad({x})) {
    Record("dropout", {x}, {y}, [options, strides, offset](GradContext& ctx) {
      ctx.set(0, Apply(ctx.grad(), options, strides, offset));
    });
  }
  return y;
}

}  // namespace tessera
