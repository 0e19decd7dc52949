// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul.h"

#include "autograd/autograd.h"
#include "ops/cast/autocast.h"
#include "ops/matmul/product.h"
#include "ops/reduction/sum.h"

namespace tessera {

Tensor Matmul(const Tensor& given_a, const Tensor& given_b) {
  const Tensor a = ForProduct(given_a);
  const Tensor b = ForProduct(given_b);
  TESSERA_CHECK(a.ndim() >= 2 && b.ndim() >= 2 && a.size(-1) == b.size(-2) &&
                    a.dtype() == b.dtype() && IsFloating(a.dtype()) && a.device() == b.device(),
                "matmul", "cannot multiply ", a, " and ", b);
  Tensor c = Product(a, b);
  if (AnyRequiresGrad({a, b})) {
    Record("matmul", {a, b}, {c}, [a = SavedTensor(a), b = SavedTensor(b)](GradContext& ctx) {
      const Tensor x = a.Unpack();
      const Tensor y = b.Unpack();
      if (ctx.needs(0)) ctx.set(0, SumTo(Product(ctx.grad(), Transposed(y)), x.shape()));
      if (ctx.needs(1)) ctx.set(1, SumTo(Product(Transposed(x), ctx.grad()), y.shape()));
    });
  }
  return c;
}

}  // namespace tessera
