// SPDX-License-Identifier: Apache-2.0
#include "ops/cast/cast.h"

#include "autograd/autograd.h"

namespace tessera {

Tensor Cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = CastCopy(x, dtype);
  if (IsFloating(dtype) && AnyRequiresGrad({x})) {
    Record("cast", {x}, {y},
           [from = x.dtype()](GradContext& ctx) { ctx.set(0, CastCopy(ctx.grad(), from)); });
  }
  return y;
}

Tensor ToDevice(const Tensor& x, const Device& device) {
  if (x.device() == device) return x;
  Tensor y = CopyTo(x, device);
  if (AnyRequiresGrad({x})) {
    Record("to_device", {x}, {y},
           [from = x.device()](GradContext& ctx) { ctx.set(0, CopyTo(ctx.grad(), from)); });
  }
  return y;
}

}  // namespace tessera
