// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise/rounding.h"

#include <cmath>

#include "autograd/autograd.h"
#include "ops/cast/cast.h"
#include "ops/cast/promotion.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/elementwise_kernel.h"
#include "ops/reduction/sum.h"

namespace tessera {
namespace {

// Of float32 or float64. A sum with 2^23 (2^52) has no digits left for a fraction, and addition
// rounds to the nearest number, of two to the even one.
Tensor Nearest(const Tensor& x) {
  const double whole_from = x.dtype() == DType::kFloat64 ? 0x1p52 : 0x1p23;
  const Tensor size = Abs(x);
  const Tensor rounded = Sub(Add(size, whole_from), whole_from);
  const Tensor with_sign = Where(Compare(x, 0.0, Comparison::kLess), Neg(rounded), rounded);
  return Where(Compare(size, whole_from, Comparison::kLess), with_sign, x);
}

Tensor Below(const Tensor& x) {
  const Tensor near = Nearest(x);
  return Where(Compare(near, x, Comparison::kGreater), Sub(near, 1.0), near);
}

Tensor Above(const Tensor& x) {
  const Tensor near = Nearest(x);
  return Where(Compare(near, x, Comparison::kLess), Add(near, 1.0), near);
}

Tensor Rounded(const char* name, const Tensor& x, Tensor (*round)(const Tensor&)) {
  if (!IsFloating(x.dtype())) return x;
  Tensor y;
  {
    const NoGrad no_grad;
    y = Cast(round(Cast(x, AccumulateDType(x.dtype()))), x.dtype());
  }
  if (AnyRequiresGrad({x})) {
    Record(name, {x}, {y}, [](GradContext& ctx) { ctx.set(0, ZerosLike(ctx.grad())); });
  }
  return y;
}

// int64 of both, which broadcast.
Tensor DivideWhole(const Tensor& a, const Tensor& b) {
  TESSERA_CHECK(a.device() == b.device(), "floor_divide", "one device is needed, got ", a, " and ",
                b);
  if (b.device().is_cpu()) {
    const std::vector<int64_t> divisors = b.ToVector<int64_t>();
    for (size_t i = 0; i < divisors.size(); ++i) {
      TESSERA_CHECK(divisors[i] != 0, "floor_divide", a, " by ", b, ": element ", i,
                    " of the divisor is 0");
    }
  }
  const Shape shape = BroadcastShapes(a.shape(), b.shape(), "floor_divide");
  const Tensor out = Empty(shape, DType::kInt64, a.device());
  if (out.numel() == 0) return out;
  const Tensor x = BroadcastTo(a, shape);
  const Tensor y = BroadcastTo(b, shape);
  binary_kernel.Launch(a.device(), {.op = BinaryOp::kDiv,
                                    .dtype = DType::kInt64,
                                    .shape = shape,
                                    .a = x.raw_data(),
                                    .a_strides = x.strides(),
                                    .b = y.raw_data(),
                                    .b_strides = y.strides(),
                                    .out = out.raw_data()});
  return out;
}

// A number as an operand beside x: a fraction beside whole numbers stays one.
Tensor Operand(const Tensor& x, double value) {
  const bool fraction = !IsFloating(x.dtype()) && value != std::floor(value);
  const DType whole = x.dtype() == DType::kBool ? DType::kInt64 : x.dtype();
  return Full({}, value, fraction ? DType::kFloat32 : whole, x.device());
}

// What the result of a division has.
DType QuotientDType(const Tensor& a, const Tensor& b) {
  const DType dtype = PromotedDType(a.dtype(), b.dtype());
  return dtype == DType::kBool ? DType::kInt64 : dtype;
}

}  // namespace

Tensor Floor(const Tensor& x) { return Rounded("floor", x, Below); }
Tensor Ceil(const Tensor& x) { return Rounded("ceil", x, Above); }
Tensor Round(const Tensor& x) { return Rounded("round", x, Nearest); }

Tensor FloorDivide(const Tensor& a, const Tensor& b) {
  const DType dtype = QuotientDType(a, b);
  if (!IsFloating(dtype)) {
    return Cast(DivideWhole(Cast(a, DType::kInt64), Cast(b, DType::kInt64)), dtype);
  }
  return Cast(Floor(Div(Cast(a, DType::kFloat64), Cast(b, DType::kFloat64))), dtype);
}

Tensor FloorDivide(const Tensor& a, double b) { return FloorDivide(a, Operand(a, b)); }

Tensor Remainder(const Tensor& a, const Tensor& b) {
  const DType dtype = QuotientDType(a, b);
  const DType wide = IsFloating(dtype) ? DType::kFloat64 : DType::kInt64;
  const Tensor x = Cast(a, wide);
  const Tensor y = Cast(b, wide);
  return Cast(Sub(x, Mul(y, FloorDivide(x, y))), dtype);
}

Tensor Remainder(const Tensor& a, double b) { return Remainder(a, Operand(a, b)); }

}  // namespace tessera
