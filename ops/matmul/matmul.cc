// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul.h"

#include "autograd/autograd.h"
#include "ops/cast/autocast.h"
#include "ops/cast/promotion.h"
#include "ops/matmul/product.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera {

namespace {

void CheckOperands(const Tensor& a, const Tensor& b) {
  const char* broken = nullptr;
  if (!IsFloating(a.dtype())) broken = "a floating dtype is needed";
  if (!(a.device() == b.device())) broken = "they are on two devices";
  if (a.size(-1) != b.size(-2)) broken = "the first has not as many columns as the second has rows";
  TESSERA_CHECK(broken == nullptr, "matmul", "cannot multiply ", a, " and ", b, ": ", broken);
}

// Both matrices, or stacks of them.
Tensor OfMatrices(const Tensor& a, const Tensor& b) {
  CheckOperands(a, b);
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

}  // namespace

Tensor Matmul(const Tensor& given_a, const Tensor& given_b) {
  Tensor a = ForProduct(given_a);
  Tensor b = ForProduct(given_b);
  TESSERA_CHECK(a.ndim() >= 1 && b.ndim() >= 1, "matmul", "cannot multiply ", a, " and ", b,
                ": vectors and matrices are multiplied, numbers by Mul");
  const DType dtype = PromotedDType(a.dtype(), b.dtype());
  a = Cast(a, dtype);
  b = Cast(b, dtype);
  const bool row = a.ndim() == 1;
  const bool column = b.ndim() == 1;
  Tensor c = OfMatrices(row ? Unsqueeze(a, 0) : a, column ? Unsqueeze(b, 1) : b);
  if (column) c = Squeeze(c, -1);
  return row ? Squeeze(c, column ? -1 : -2) : c;
}

}  // namespace tessera
