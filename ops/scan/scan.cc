// SPDX-License-Identifier: Apache-2.0
#include "ops/scan/scan.h"

#include "autograd/autograd.h"
#include "ops/scan/scan_kernel.h"

namespace tessera {
namespace {

Tensor RunningSums(const Tensor& x, int dim, bool from_end) {
  Tensor y = Empty(x.shape(), x.dtype(), x.device());
  if (y.numel() == 0) return y;
  const Tensor xc = x.ContiguousCopy();
  cumsum_kernel.Launch(
      x.device(), {x.dtype(), AlongDim(x.shape(), dim), from_end, xc.raw_data(), y.raw_data()});
  return y;
}

}  // namespace

Tensor CumSum(const Tensor& x, int dim) {
  if (!IsFloating(x.dtype()) && x.dtype() != DType::kInt64) {
    return CumSum(CastCopy(x, DType::kInt64), dim);
  }
  dim = x.shape().Normalize(dim, "cumsum");
  Tensor y = RunningSums(x, dim, /*from_end=*/false);
  if (AnyRequiresGrad({x})) {
    // x[i] is part of y[i] and of all behind it.
    Record("cumsum", {x}, {y}, [dim](GradContext& ctx) {
      ctx.set(0, RunningSums(ctx.grad(), dim, /*from_end=*/true));
    });
  }
  return y;
}

}  // namespace tessera
