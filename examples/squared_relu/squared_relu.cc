// SPDX-License-Identifier: Apache-2.0
#include "examples/squared_relu/squared_relu.h"

#include <tessera/autograd/autograd.h>

#include "examples/squared_relu/squared_relu_kernel.h"

namespace tessera::examples {
namespace {

// With a gradient of the result, that of x.
Tensor Run(const Tensor& x, const Tensor& grad = Tensor()) {
  const Tensor xc = x.ContiguousCopy();
  const Tensor gc = grad.defined() ? grad.ContiguousCopy() : Tensor();
  Tensor out = Empty(x.shape(), x.dtype(), x.device());
  squared_relu_kernel.Launch(x.device(), {x.dtype(), x.numel(), xc.raw_data(),
                                          gc.defined() ? gc.raw_data() : nullptr, out.raw_data()});
  return out;
}

}  // namespace

Tensor SquaredRelu(const Tensor& x) {
  TESSERA_CHECK(IsFloating(x.dtype()), "squared_relu", "a floating dtype is needed, got ", x);
  Tensor y = Run(x);
  if (AnyRequiresGrad({x})) {
    Record("squared_relu", {x}, {y},
           [x = SavedTensor(x)](GradContext& ctx) { ctx.set(0, Run(x.Unpack(), ctx.grad())); });
  }
  return y;
}

}  // namespace tessera::examples
