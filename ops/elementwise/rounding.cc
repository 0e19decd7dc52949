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

// What the kernel makes of both, which are of `dtype` and broadcast.
Tensor Launch(BinaryOp op, DType dtype, const Tensor& a, const Tensor& b) {
  const Shape shape = BroadcastShapes(a.shape(), b.shape(), "floor_divide");
  const Tensor out = Empty(shape, dtype, a.device());
  if (out.numel() == 0) return out;
  const Tensor x = BroadcastTo(a, shape);
  const Tensor y = BroadcastTo(b, shape);
  binary_kernel.Launch(a.device(), {.op = op,
                                    .dtype = dtype,
                                    .shape = shape,
                                    .a = x.raw_data(),
                                    .a_strides = x.strides(),
                                    .b = y.raw_data(),
                                    .b_strides = y.strides(),
                                    .out = out.raw_data()});
  return out;
}

// int64 of both.
Tensor DivideWhole(const Tensor& a, const Tensor& b) {
  if (b.device().is_cpu()) {
    const std::vector<int64_t> divisors = b.ToVector<int64_t>();
    for (size_t i = 0; i < divisors.size(); ++i) {
      TESSERA_CHECK(divisors[i] != 0, "floor_divide", a, " by ", b, ": element ", i,
                    " of the divisor is 0");
    }
  }
  return Launch(BinaryOp::kDiv, DType::kInt64, a, b);
}

// Of float64, as Python's // and %: the remainder is exact, and the quotient the whole number next
// to what the rest divides into. Without the tape.
struct Division {
  Tensor quotient;
  Tensor remainder;
};

Division DivideFloating(const Tensor& x, const Tensor& y) {
  const NoGrad no_grad;
  const Tensor towards_zero = Launch(BinaryOp::kFmod, DType::kFloat64, x, y);
  const Tensor quotient = Div(Sub(x, towards_zero), y);
  // A rest of the other sign than the divisor's belongs to the whole number below.
  const Tensor negative = Compare(towards_zero, 0.0, Comparison::kLess);
  const Tensor other_sign =
      Compare(negative, Compare(y, 0.0, Comparison::kLess), Comparison::kNotEqual);
  const Tensor below =
      Where(Compare(towards_zero, 0.0, Comparison::kNotEqual), other_sign, ZerosLike(other_sign));
  const Tensor whole = Nearest(Where(below, Sub(quotient, 1.0), quotient));
  // Zeros have the quotient's sign, and what is divided by zero is what Div makes of it.
  const Tensor plain = Div(x, y);
  const Tensor signed_whole =
      Where(Compare(whole, 0.0, Comparison::kEqual), Mul(plain, ZerosLike(plain)), whole);
  return {.quotient = Where(Compare(y, 0.0, Comparison::kEqual), plain, signed_whole),
          .remainder = Where(below, Add(towards_zero, y), towards_zero)};
}

// The operands as float64 (int64), which broadcast.
struct Operands {
  Tensor x;
  Tensor y;
};

Operands Widened(const Tensor& a, const Tensor& b, DType dtype) {
  TESSERA_CHECK(a.device() == b.device(), "floor_divide", "one device is needed, got ", a, " and ",
                b);
  const DType wide = IsFloating(dtype) ? DType::kFloat64 : DType::kInt64;
  const Shape shape = BroadcastShapes(a.shape(), b.shape(), "floor_divide");
  return {.x = BroadcastTo(Cast(a, wide), shape), .y = BroadcastTo(Cast(b, wide), shape)};
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
  const auto [x, y] = Widened(a, b, dtype);
  if (!IsFloating(dtype)) return Cast(DivideWhole(x, y), dtype);
  const Tensor quotient = DivideFloating(x, y).quotient;
  if (AnyRequiresGrad({x, y})) {
    Record("floor_divide", {x, y}, {quotient}, [](GradContext& ctx) {
      ctx.set(0, ZerosLike(ctx.grad()));
      ctx.set(1, ZerosLike(ctx.grad()));
    });
  }
  return Cast(quotient, dtype);
}

Tensor FloorDivide(const Tensor& a, double b) { return FloorDivide(a, Operand(a, b)); }

Tensor Remainder(const Tensor& a, const Tensor& b) {
  const DType dtype = QuotientDType(a, b);
  const auto [x, y] = Widened(a, b, dtype);
  if (!IsFloating(dtype)) return Cast(Sub(x, Mul(y, DivideWhole(x, y))), dtype);
  const Division division = DivideFloating(x, y);
  if (AnyRequiresGrad({x, y})) {
    Record("remainder", {x, y}, {division.remainder},
           [quotient = SavedTensor(division.quotient)](GradContext& ctx) {
             ctx.set(0, ctx.grad());
             if (ctx.needs(1)) ctx.set(1, Neg(Mul(ctx.grad(), quotient.Unpack())));
           });
  }
  return Cast(division.remainder, dtype);
}

Tensor Remainder(const Tensor& a, double b) { return Remainder(a, Operand(a, b)); }

}  // namespace tessera
