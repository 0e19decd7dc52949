// SPDX-License-Identifier: Apache-2.0
#include "ops/softmax/softmax.h"

#include "autograd/autograd.h"
#include "ops/softmax/softmax_kernel.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Along the last dim of a contiguous x.
Tensor LastDim(const char* name, const Tensor& x, bool log) {
  Tensor y = Empty(x.shape(), x.dtype(), x.device());
  if (y.numel() > 0) {
    const Tensor xc = x.ContiguousCopy();
    softmax_forward.Launch(x.device(), {.dtype = x.dtype(),
                                        .log = log,
                                        .rows = x.numel() / x.size(-1),
                                        .n = x.size(-1),
                                        .x = xc.raw_data(),
                                        .y = y.raw_data()});
  }
  if (AnyRequiresGrad({x})) {
    Record(name, {x}, {y}, [saved = SavedTensor(y), log](GradContext& ctx) {
      const Tensor result = saved.Unpack();
      const Tensor dy = ctx.grad().ContiguousCopy();
      const Tensor dx = EmptyLike(result);
      if (dx.numel() > 0) {
        softmax_backward.Launch(dx.device(), {.dtype = dx.dtype(),
                                              .log = log,
                                              .rows = dx.numel() / dx.size(-1),
                                              .n = dx.size(-1),
                                              .y = result.raw_data(),
                                              .dy = dy.raw_data(),
                                              .dx = dx.raw_data()});
      }
      ctx.set(0, dx);
    });
  }
  return y;
}

Tensor AlongDim(const char* name, const Tensor& x, int dim, bool log) {
  TESSERA_CHECK(IsFloating(x.dtype()) && x.ndim() > 0, name, "cannot be taken of ", x);
  dim = x.shape().Normalize(dim, name);
  if (dim == x.ndim() - 1) return LastDim(name, x, log);
  return Transpose(LastDim(name, Transpose(x, dim, -1), log), dim, -1);
}

}  // namespace

Tensor Softmax(const Tensor& x, int dim) { return AlongDim("softmax", x, dim, false); }

Tensor LogSoftmax(const Tensor& x, int dim) { return AlongDim("log_softmax", x, dim, true); }

}  // namespace tessera
