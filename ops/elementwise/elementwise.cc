// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise/elementwise.h"

#include <cmath>
#include <limits>

#include "autograd/autograd.h"
#include "ops/cast/promotion.h"
#include "ops/elementwise/elementwise_kernel.h"
#include "ops/reduction/sum.h"

namespace tessera {
namespace {

// Strides of t stretched to `shape`: 0 where it repeats.
Shape StretchedStrides(const Tensor& t, const Shape& shape) {
  Shape strides = shape;
  const int lead = shape.ndim() - t.ndim();
  for (int d = 0; d < shape.ndim(); ++d) {
    const bool repeats = d < lead || (t.size(d - lead) == 1 && shape[d] != 1);
    strides[d] = repeats ? 0 : t.stride(d - lead);
  }
  return strides;
}

const void* Data(const Tensor& t) { return t.raw_data(); }

Tensor LaunchUnary(UnaryOp op, const Tensor& x, double scale = 1, double shift = 0) {
  Tensor out = Empty(x.shape(), x.dtype(), x.device());
  if (out.numel() == 0) return out;
  unary_kernel.Launch(x.device(), {.op = op,
                                   .dtype = x.dtype(),
                                   .shape = x.shape(),
                                   .x = Data(x),
                                   .x_strides = x.strides(),
                                   .out = out.raw_data(),
                                   .scale = scale,
                                   .shift = shift});
  return out;
}

Tensor LaunchBinary(BinaryOp op, const char* name, const Tensor& a, const Tensor& b) {
  TESSERA_CHECK(a.dtype() == b.dtype() && a.device() == b.device(), name,
                "one device is needed, got ", a, " and ", b);
  const Shape shape = BroadcastShapes(a.shape(), b.shape(), name);
  Tensor out = Empty(shape, a.dtype(), a.device());
  if (out.numel() == 0) return out;
  binary_kernel.Launch(a.device(), {.op = op,
                                    .dtype = a.dtype(),
                                    .shape = shape,
                                    .a = Data(a),
                                    .a_strides = StretchedStrides(a, shape),
                                    .b = Data(b),
                                    .b_strides = StretchedStrides(b, shape),
                                    .out = out.raw_data()});
  return out;
}

void CheckFloating(const char* name, const Tensor& x) {
  TESSERA_CHECK(IsFloating(x.dtype()), name, "a floating dtype is needed, got ", x);
}

// A function whose gradient is `grad_op` of (gradient, x), or (gradient, y) with `saves_result`.
Tensor Unary(UnaryOp op, const char* name, const Tensor& x, BinaryOp grad_op, bool saves_result) {
  CheckFloating(name, x);
  Tensor y = LaunchUnary(op, x);
  if (AnyRequiresGrad({x})) {
    Record(name, {x}, {y},
           [saved = SavedTensor(saves_result ? y : x), grad_op, name](GradContext& ctx) {
             ctx.set(0, LaunchBinary(grad_op, name, ctx.grad(), saved.Unpack()));
           });
  }
  return y;
}

// A function whose gradient is made of operations, which get its numbers, too.
using UnaryGrad = Tensor (*)(const Tensor& grad, const Tensor& x, double scale, double shift);

Tensor Unary(UnaryOp op, const char* name, const Tensor& x, UnaryGrad grad_x, double scale = 1,
             double shift = 0) {
  CheckFloating(name, x);
  Tensor y = LaunchUnary(op, x, scale, shift);
  if (AnyRequiresGrad({x})) {
    Record(name, {x}, {y}, [saved = SavedTensor(x), scale, shift, grad_x](GradContext& ctx) {
      ctx.set(0, grad_x(ctx.grad(), saved.Unpack(), scale, shift));
    });
  }
  return y;
}

Tensor As(const Tensor& t, DType dtype) { return t.dtype() == dtype ? t : CastCopy(t, dtype); }

// Whole numbers and masks, both of one dtype. Arithmetic is int64's, and wraps in narrower dtypes.
Tensor OfIntegers(BinaryOp op, const char* name, const Tensor& a, const Tensor& b) {
  if (op == BinaryOp::kMaximum || op == BinaryOp::kMinimum) {
    const bool largest = op == BinaryOp::kMaximum;
    return Where(Compare(a, b, largest ? Comparison::kGreater : Comparison::kLess), a, b);
  }
  TESSERA_CHECK(op == BinaryOp::kAdd || op == BinaryOp::kSub || op == BinaryOp::kMul, name,
                "a floating dtype is needed, got ", a, " and ", b);
  TESSERA_CHECK(op != BinaryOp::kSub || a.dtype() != DType::kBool, name, a, " and ", b,
                ": masks are not subtracted; Compare(a, b, Comparison::kNotEqual) is where they "
                "differ");
  return As(LaunchBinary(op, name, As(a, DType::kInt64), As(b, DType::kInt64)), a.dtype());
}

using BinaryGrad = Tensor (*)(const Tensor& grad, const Tensor& a, const Tensor& b);

// `grad_a` and `grad_b` give gradients in the broadcast shape; saves only what they read.
struct BinaryRule {
  BinaryOp op;
  const char* name;
  BinaryGrad grad_a;
  BinaryGrad grad_b;
  bool saves_operands;
};

Tensor Binary(const BinaryRule& rule, const Tensor& a, const Tensor& b) {
  DType dtype = PromotedDType(a.dtype(), b.dtype());
  if (rule.op == BinaryOp::kDiv && !IsFloating(dtype)) dtype = DType::kFloat32;
  const auto compute = IsFloating(dtype) ? LaunchBinary : OfIntegers;
  Tensor y = compute(rule.op, rule.name, As(a, dtype), As(b, dtype));
  if (AnyRequiresGrad({a, b})) {
    Record(
        rule.name, {a, b}, {y},
        [rule, a_saved = SavedTensor(rule.saves_operands ? a : Tensor()),
         b_saved = SavedTensor(rule.saves_operands ? b : Tensor()), a_shape = a.shape(),
         b_shape = b.shape(), a_dtype = a.dtype(), b_dtype = b.dtype(), dtype](GradContext& ctx) {
          Tensor x = a_saved.Unpack();
          Tensor z = b_saved.Unpack();
          if (x.defined()) x = As(x, dtype);
          if (z.defined()) z = As(z, dtype);
          if (ctx.needs(0)) {
            ctx.set(0, As(SumTo(rule.grad_a(ctx.grad(), x, z), a_shape), a_dtype));
          }
          if (ctx.needs(1)) {
            ctx.set(1, As(SumTo(rule.grad_b(ctx.grad(), x, z), b_shape), b_dtype));
          }
        });
  }
  return y;
}

Tensor PassGrad(const Tensor& g, const Tensor&, const Tensor&) { return g; }

// The share of the gradient that goes to the first of two extrema: none where it loses, half where
// they are equal, all otherwise, which NaN is too.
Tensor ExtremumShare(const Tensor& g, const Tensor& a, const Tensor& b, Comparison loses) {
  const Tensor kept = Where(Compare(a, b, Comparison::kEqual), Mul(g, 0.5), g);
  return Where(Compare(a, b, loses), ZerosLike(kept), kept);
}

// A number beside x, of no dims, so that x keeps its own.
Tensor NumberLike(const Tensor& x, double value) { return Full({}, value, x.dtype(), x.device()); }

// The same where the dtype can hold it: a fraction beside whole numbers is refused. Beside a mask
// it is int64.
Tensor NumberBeside(const Tensor& x, double value, const char* operation) {
  TESSERA_CHECK(IsFloating(x.dtype()) || value == std::floor(value), operation, value, " beside ",
                x, " is no whole number; Cast the tensor to a floating dtype first");
  const DType dtype = x.dtype() == DType::kBool ? DType::kInt64 : x.dtype();
  return Full({}, value, dtype, x.device());
}

// What x and a number are compared in: x's dtype where that can hold the number, else a wider one.
DType ComparedIn(DType dtype, double value) {
  constexpr double kLargestBFloat16 = 0x1.fep127;
  const auto among = [&](double low, double high, DType wider) {
    return value >= low && value <= high && value == std::floor(value) ? dtype : wider;
  };
  const auto up_to = [&](double largest) {
    return std::isfinite(value) && std::abs(value) > largest ? DType::kFloat64 : dtype;
  };
  const bool whole = value == std::floor(value) && value >= -0x1p63 && value < 0x1p63;
  const DType wider = whole ? DType::kInt64 : DType::kFloat64;
  switch (dtype) {
    case DType::kBool:
      return among(0, 1, wider);
    case DType::kUInt8:
      return among(0, 255, wider);
    case DType::kInt32:
      return among(-0x1p31, 0x1p31 - 1, wider);
    case DType::kInt64:
      return wider;
    case DType::kFloat16:
      return up_to(65504);
    case DType::kBFloat16:
      return up_to(kLargestBFloat16);
    case DType::kFloat32:
      return up_to(std::numeric_limits<float>::max());
    case DType::kFloat64:
      break;
  }
  return dtype;
}

// Of a mask it gives int64.
Tensor AffineOfIntegers(const Tensor& x, double scale, double shift) {
  TESSERA_CHECK(scale == std::floor(scale) && shift == std::floor(shift), "affine", x, " * ", scale,
                " + ", shift, " is not made of whole numbers; Cast it to a floating dtype first");
  const Tensor wide = As(x, DType::kInt64);
  const Tensor y = Add(Mul(wide, NumberLike(wide, scale)), NumberLike(wide, shift));
  return x.dtype() == DType::kBool ? y : As(y, x.dtype());
}

// Of a mask it gives int64.
Tensor ClampIntegers(const Tensor& x, double low, double high) {
  constexpr double kMost = 9.2e18;  // beyond it no bound is an int64, and none is needed
  Tensor y = As(x, DType::kInt64);
  if (low > -kMost) y = Maximum(y, NumberBeside(y, low, "clamp"));
  if (high < kMost) y = Minimum(y, NumberBeside(y, high, "clamp"));
  return x.dtype() == DType::kBool ? y : As(y, x.dtype());
}

// By squaring. Of a mask it gives int64.
Tensor PowIntegers(const Tensor& base, double exponent) {
  TESSERA_CHECK(exponent >= 0 && exponent == std::floor(exponent) && exponent < 1e9, "pow", base,
                " ^ ", exponent,
                " is not made of whole numbers; Cast it to a floating dtype first");
  Tensor power = As(base, base.dtype() == DType::kBool ? DType::kInt64 : base.dtype());
  Tensor y = Full(base.shape(), 1.0, power.dtype(), base.device());
  for (auto left = static_cast<int64_t>(exponent); left > 0; left /= 2) {
    if (left % 2 == 1) y = Mul(y, power);
    if (left > 1) power = Mul(power, power);
  }
  return y;
}

// A quotient of whole numbers is a fraction.
Tensor Fractions(const Tensor& x) { return IsFloating(x.dtype()) ? x : As(x, DType::kFloat32); }

}  // namespace

Tensor Add(const Tensor& a, const Tensor& b) {
  return Binary({BinaryOp::kAdd, "add", PassGrad, PassGrad, false}, a, b);
}

Tensor Sub(const Tensor& a, const Tensor& b) {
  return Binary({BinaryOp::kSub, "sub", PassGrad,
                 [](const Tensor& g, const Tensor&, const Tensor&) { return Neg(g); }, false},
                a, b);
}

Tensor Mul(const Tensor& a, const Tensor& b) {
  return Binary({BinaryOp::kMul, "mul",
                 [](const Tensor& g, const Tensor&, const Tensor& z) { return Mul(g, z); },
                 [](const Tensor& g, const Tensor& x, const Tensor&) { return Mul(g, x); }, true},
                a, b);
}

Tensor Div(const Tensor& a, const Tensor& b) {
  return Binary({BinaryOp::kDiv, "div",
                 [](const Tensor& g, const Tensor&, const Tensor& z) { return Div(g, z); },
                 [](const Tensor& g, const Tensor& x, const Tensor& z) {
                   return Neg(Div(Div(Mul(g, x), z), z));
                 },
                 true},
                a, b);
}

Tensor Maximum(const Tensor& a, const Tensor& b) {
  return Binary({BinaryOp::kMaximum, "maximum",
                 [](const Tensor& g, const Tensor& x, const Tensor& z) {
                   return ExtremumShare(g, x, z, Comparison::kLess);
                 },
                 [](const Tensor& g, const Tensor& x, const Tensor& z) {
                   return ExtremumShare(g, z, x, Comparison::kLess);
                 },
                 true},
                a, b);
}

Tensor Minimum(const Tensor& a, const Tensor& b) {
  return Binary({BinaryOp::kMinimum, "minimum",
                 [](const Tensor& g, const Tensor& x, const Tensor& z) {
                   return ExtremumShare(g, x, z, Comparison::kGreater);
                 },
                 [](const Tensor& g, const Tensor& x, const Tensor& z) {
                   return ExtremumShare(g, z, x, Comparison::kGreater);
                 },
                 true},
                a, b);
}

Tensor Affine(const Tensor& x, double scale, double shift) {
  if (!IsFloating(x.dtype())) return AffineOfIntegers(x, scale, shift);
  Tensor y = LaunchUnary(UnaryOp::kAffine, x, scale, shift);
  if (AnyRequiresGrad({x})) {
    Record("affine", {x}, {y},
           [scale](GradContext& ctx) { ctx.set(0, Affine(ctx.grad(), scale, 0.0)); });
  }
  return y;
}

Tensor Div(const Tensor& x, double value) { return Affine(Fractions(x), 1.0 / value, 0.0); }

Tensor Div(double value, const Tensor& x) {
  return Unary(
      UnaryOp::kOver, "div", Fractions(x),
      [](const Tensor& g, const Tensor& at, double numerator, double) {
        return Neg(Mul(g, Div(Div(numerator, at), at)));
      },
      value);
}

Tensor Pow(const Tensor& base, double exponent) {
  if (!IsFloating(base.dtype())) return PowIntegers(base, exponent);
  if (exponent == 2) return Square(base);
  if (exponent == 0.5) return Sqrt(base);
  return Unary(
      UnaryOp::kPow, "pow", base,
      [](const Tensor& g, const Tensor& x, double p, double) {
        return p == 0 ? ZerosLike(x) : Mul(g, Mul(Pow(x, p - 1), p));
      },
      exponent);
}

Tensor Pow(const Tensor& base, const Tensor& exponent) {
  return Binary({BinaryOp::kPower, "pow",
                 [](const Tensor& g, const Tensor& x, const Tensor& p) {
                   const Tensor slope = Mul(p, Pow(x, Sub(p, 1.0)));
                   return Where(Compare(p, 0.0, Comparison::kEqual), 0.0, Mul(g, slope));
                 },
                 [](const Tensor& g, const Tensor& x, const Tensor& p) {
                   const Tensor slope = Mul(Pow(x, p), Log(x));
                   return Where(Compare(x, 0.0, Comparison::kEqual), 0.0, Mul(g, slope));
                 },
                 true},
                base, exponent);
}

Tensor Clamp(const Tensor& x, double low, double high) {
  TESSERA_CHECK(low <= high, "clamp", "[", low, ", ", high, "] is empty");
  if (!IsFloating(x.dtype())) return ClampIntegers(x, low, high);
  return Unary(
      UnaryOp::kClamp, "clamp", x,
      [](const Tensor& g, const Tensor& at, double least, double most) {
        const Tensor held = Clamp(at, least, most);
        return Where(Compare(at, held, Comparison::kEqual), g, 0.0);
      },
      low, high);
}

Tensor Sin(const Tensor& x) {
  return Unary(UnaryOp::kSin, "sin", x,
               [](const Tensor& g, const Tensor& at, double, double) { return Mul(g, Cos(at)); });
}
Tensor Cos(const Tensor& x) {
  return Unary(UnaryOp::kCos, "cos", x, [](const Tensor& g, const Tensor& at, double, double) {
    return Neg(Mul(g, Sin(at)));
  });
}
Tensor Expm1(const Tensor& x) {
  return Unary(UnaryOp::kExpm1, "expm1", x,
               [](const Tensor& g, const Tensor& at, double, double) { return Mul(g, Exp(at)); });
}
Tensor Log1p(const Tensor& x) {
  return Unary(UnaryOp::kLog1p, "log1p", x, [](const Tensor& g, const Tensor& at, double, double) {
    return Div(g, Add(at, 1.0));
  });
}

Tensor NormalCdf(const Tensor& x) {
  return Unary(UnaryOp::kNormalCdf, "normal_cdf", x,
               [](const Tensor& g, const Tensor& at, double, double) {
                 const Tensor density = Mul(Exp(Mul(Square(at), -0.5)), 0.39894228040143267794);
                 return Mul(g, density);
               });
}

Tensor Exp(const Tensor& x) { return Unary(UnaryOp::kExp, "exp", x, BinaryOp::kMul, true); }
Tensor Log(const Tensor& x) { return Unary(UnaryOp::kLog, "log", x, BinaryOp::kLogGrad, false); }
Tensor Sqrt(const Tensor& x) { return Unary(UnaryOp::kSqrt, "sqrt", x, BinaryOp::kSqrtGrad, true); }
Tensor Rsqrt(const Tensor& x) {
  return Unary(UnaryOp::kRsqrt, "rsqrt", x, BinaryOp::kRsqrtGrad, true);
}
Tensor Square(const Tensor& x) {
  if (!IsFloating(x.dtype())) return Mul(x, x);
  return Unary(UnaryOp::kSquare, "square", x, BinaryOp::kSquareGrad, false);
}
Tensor Abs(const Tensor& x) {
  if (x.dtype() == DType::kBool) return x;
  if (!IsFloating(x.dtype())) return Where(Compare(x, 0.0, Comparison::kLess), Neg(x), x);
  return Unary(UnaryOp::kAbs, "abs", x, BinaryOp::kAbsGrad, false);
}
Tensor Tanh(const Tensor& x) { return Unary(UnaryOp::kTanh, "tanh", x, BinaryOp::kTanhGrad, true); }
Tensor Sigmoid(const Tensor& x) {
  return Unary(UnaryOp::kSigmoid, "sigmoid", x, BinaryOp::kSigmoidGrad, true);
}
Tensor Softplus(const Tensor& x) {
  return Unary(UnaryOp::kSoftplus, "softplus", x, BinaryOp::kSoftplusGrad, false);
}
Tensor Relu(const Tensor& x) { return Unary(UnaryOp::kRelu, "relu", x, BinaryOp::kReluGrad, true); }
Tensor Silu(const Tensor& x) {
  return Unary(UnaryOp::kSilu, "silu", x, BinaryOp::kSiluGrad, false);
}
Tensor Gelu(const Tensor& x) {
  return Unary(UnaryOp::kGelu, "gelu", x, BinaryOp::kGeluGrad, false);
}
Tensor GeluTanh(const Tensor& x) {
  return Unary(UnaryOp::kGeluTanh, "gelu_tanh", x, BinaryOp::kGeluTanhGrad, false);
}

Tensor Where(const Tensor& condition, const Tensor& given_a, const Tensor& given_b) {
  TESSERA_CHECK(condition.dtype() == DType::kBool || condition.dtype() == DType::kUInt8, "where",
                "the condition must be bool or uint8, got ", condition);
  const DType dtype = PromotedDType(given_a.dtype(), given_b.dtype());
  const Tensor a = As(given_a, dtype);
  const Tensor b = As(given_b, dtype);
  TESSERA_CHECK(a.device() == b.device() && a.device() == condition.device(), "where",
                "one device is needed, got ", condition, ", ", a, " and ", b);
  const Shape shape =
      BroadcastShapes(BroadcastShapes(a.shape(), b.shape(), "where"), condition.shape(), "where");
  Tensor y = Empty(shape, dtype, a.device());
  if (y.numel() > 0) {
    where_kernel.Launch(a.device(), {.dtype = dtype,
                                     .shape = shape,
                                     .condition = static_cast<const uint8_t*>(Data(condition)),
                                     .condition_strides = StretchedStrides(condition, shape),
                                     .a = Data(a),
                                     .a_strides = StretchedStrides(a, shape),
                                     .b = Data(b),
                                     .b_strides = StretchedStrides(b, shape),
                                     .out = y.raw_data()});
  }
  if (AnyRequiresGrad({given_a, given_b})) {
    Record("where", {condition, given_a, given_b}, {y},
           [condition = SavedTensor(condition), a_shape = a.shape(), b_shape = b.shape(),
            a_dtype = given_a.dtype(), b_dtype = given_b.dtype()](GradContext& ctx) {
             const Tensor c = condition.Unpack();
             if (ctx.needs(1)) {
               ctx.set(1, As(SumTo(Where(c, ctx.grad(), 0.0), a_shape), a_dtype));
             }
             if (ctx.needs(2)) {
               ctx.set(2, As(SumTo(Where(c, 0.0, ctx.grad()), b_shape), b_dtype));
             }
           });
  }
  return y;
}

Tensor Where(const Tensor& condition, const Tensor& a, double b) {
  return Where(condition, a, NumberBeside(a, b, "where"));
}

Tensor Where(const Tensor& condition, double a, const Tensor& b) {
  return Where(condition, NumberBeside(b, a, "where"), b);
}

Tensor Where(const Tensor& condition, double a, double b, DType dtype) {
  const Device& device = condition.device();
  return Where(condition, Full({}, a, dtype, device), Full({}, b, dtype, device));
}

Tensor Compare(const Tensor& given_a, const Tensor& given_b, Comparison comparison) {
  const DType dtype = PromotedDType(given_a.dtype(), given_b.dtype());
  const Tensor a = As(given_a, dtype);
  const Tensor b = As(given_b, dtype);
  TESSERA_CHECK(a.device() == b.device(), "compare", "one device is needed, got ", a, " and ", b);
  const Shape shape = BroadcastShapes(a.shape(), b.shape(), "compare");
  Tensor y = Empty(shape, DType::kBool, a.device());
  if (y.numel() > 0) {
    compare_kernel.Launch(a.device(), {.comparison = static_cast<int>(comparison),
                                       .dtype = a.dtype(),
                                       .shape = shape,
                                       .a = Data(a),
                                       .a_strides = StretchedStrides(a, shape),
                                       .b = Data(b),
                                       .b_strides = StretchedStrides(b, shape),
                                       .out = static_cast<bool*>(y.raw_data())});
  }
  return y;
}

Tensor Compare(const Tensor& a, double b, Comparison comparison) {
  const Tensor x = As(a, ComparedIn(a.dtype(), b));
  return Compare(x, NumberLike(x, b), comparison);
}

}  // namespace tessera
