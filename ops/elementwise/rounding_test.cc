// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise/rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "autograd/autograd.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/sum.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// y[i] = f(x[i], z[i]) of tensors of one shape.
template <typename F>
OpFn Elementwise(F f) {
  return [f](const Tensors& in) {
    Tensor y = Empty(in[0].shape(), DType::kFloat64);
    for (int64_t i = 0; i < y.numel(); ++i) {
      y.data<double>()[i] = f(in[0].data<double>()[i], in.back().data<double>()[i]);
    }
    return Tensors{y};
  };
}

// Numbers in [-8, 8), a tenth or more from every whole number and from halves between them: near
// those a difference quotient is no derivative.
Tensor BetweenSteps(uint64_t seed) {
  const Tensor wholes = RandomIndices({3, 40}, 32, seed);
  const Tensor fractions = RandomTensor({3, 40}, seed + 100);
  return (CastCopy(wholes, DType::kFloat64) - 16) / 2 + 0.25 + 0.15 * Tanh(fractions);
}

TEST(RoundingTest, MatchesTheLibrary) {
  const Tensors x = {BetweenSteps(1)};
  CheckOp({.name = "floor",
           .op = [](const Tensors& in) { return Tensors{Floor(in[0])}; },
           .reference = Elementwise([](double v, double) { return std::floor(v); }),
           .inputs = x});
  CheckOp({.name = "ceil",
           .op = [](const Tensors& in) { return Tensors{Ceil(in[0])}; },
           .reference = Elementwise([](double v, double) { return std::ceil(v); }),
           .inputs = x});
  CheckOp({.name = "round",
           .op = [](const Tensors& in) { return Tensors{Round(in[0])}; },
           .reference = Elementwise([](double v, double) { return std::nearbyint(v); }),
           .inputs = x});
}

TEST(RoundingTest, TiesLargeAndSpecialNumbers) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> numbers = {
      0.5,  1.5,   2.5, -0.5, -1.5, 8388607, 8388608.0, -8388609.0, 4194303.5, 0.49999997,
      1e30, -1e30, inf, -inf, -0.0, -3,      7,         1e-30,      -1e-30,    3.4e38};
  for (const Device& device : TestDevices()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const Tensor x = CopyTo(
          CastCopy(Tensor::FromVector<double>(numbers, {static_cast<int64_t>(numbers.size())}),
                   dtype),
          device);
      const std::vector<double> given = x.ToVector<double>();
      const std::vector<double> floor = Floor(x).ToVector<double>();
      const std::vector<double> ceil = Ceil(x).ToVector<double>();
      const std::vector<double> round = Round(x).ToVector<double>();
      for (size_t i = 0; i < given.size(); ++i) {
        EXPECT_EQ(floor[i], std::floor(given[i])) << given[i];
        EXPECT_EQ(ceil[i], std::ceil(given[i])) << given[i];
        EXPECT_EQ(round[i], std::nearbyint(given[i])) << given[i];
      }
    }
    const Tensor nan = CopyTo(Full({1}, std::nan("")), device);
    EXPECT_TRUE(std::isnan(Round(nan).Item()));
  }
  EXPECT_TRUE(Floor(Arange(3)).dtype() == DType::kInt64);
}

TEST(RoundingTest, DivisionWithARemainder) {
  const Tensor signs = CastCopy(RandomIndices({3, 40}, 2, 3), DType::kFloat64) * 2 - 1;
  const Tensor divisors = signs * (1 + Abs(RandomTensor({3, 40}, 4)));
  const Tensors x = {BetweenSteps(2) * divisors, divisors};
  CheckOp({.name = "floor_divide",
           .op = [](const Tensors& in) { return Tensors{FloorDivide(in[0], in[1])}; },
           .reference = Elementwise([](double a, double b) { return std::floor(a / b); }),
           .inputs = x});
  CheckOp({.name = "remainder",
           .op = [](const Tensors& in) { return Tensors{Remainder(in[0], in[1])}; },
           .reference = Elementwise([](double a, double b) { return a - b * std::floor(a / b); }),
           .inputs = x,
           .gradcheck_tolerance = 1e-5});
  EXPECT_EQ((Full({1}, -7.5) % 2).Item(), 0.5);
  EXPECT_EQ((Arange(3) % 0.5).dtype(), DType::kFloat32);
}

// Values are Python's.
TEST(RoundingTest, WholePartsAndRemaindersAreExact) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> a = {1, 1e30, 3, -3, 1e17 + 16, -inf, -7.5, 0.0, -0.0, 5, -5, nan, 6};
  const std::vector<double> b = {0.1, 0.7, inf, inf, 3, 0.3, 2, 4, 4, 0, 0, 2, -1.5};
  const std::vector<double> rest = {
      1 - 9 * 0.1, std::fmod(1e30, 0.7), 3, inf, 2, nan, 0.5, 0, -0.0, nan, nan, nan, 0};
  const std::vector<double> whole = {
      9, 1.4285714285714286e30, 0, -1, 33333333333333340, nan, -4, 0, -0.0, inf, -inf, nan, -4};
  const auto n = static_cast<int64_t>(a.size());
  for (const Device& device : TestDevices()) {
    const Tensor x = CopyTo(Tensor::FromVector<double>(a, {n}), device);
    const Tensor y = CopyTo(Tensor::FromVector<double>(b, {n}), device);
    RequireGrad(x);
    RequireGrad(y);
    const Tensor remainder = Remainder(x, y);
    const std::vector<double> rests = remainder.ToVector<double>();
    const std::vector<double> wholes = FloorDivide(x, y).ToVector<double>();
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(rest[i])) {
        EXPECT_TRUE(std::isnan(rests[i])) << a[i] << " % " << b[i];
      } else if (std::isinf(rest[i])) {
        EXPECT_EQ(rests[i], rest[i]) << a[i] << " % " << b[i];
      } else {
        EXPECT_NEAR(rests[i], rest[i], 1e-15) << a[i] << " % " << b[i];
      }
      if (std::isnan(whole[i])) {
        EXPECT_TRUE(std::isnan(wholes[i])) << a[i] << " // " << b[i];
      } else {
        EXPECT_EQ(wholes[i], whole[i]) << a[i] << " // " << b[i];
        EXPECT_EQ(std::signbit(wholes[i]), std::signbit(whole[i])) << a[i] << " // " << b[i];
      }
    }
    Backward(Sum(remainder));
    EXPECT_EQ(Grad(x).ToVector<double>(), std::vector<double>(a.size(), 1.0));
    EXPECT_EQ(Grad(y).ToVector<double>()[6], 4);
    const double left = Remainder(Full({1}, 1e30), 0.7).Item();
    EXPECT_TRUE(left >= 0 && left < 0.7) << left;
  }
}

TEST(RoundingTest, OfIntegers) {
  const int64_t least = std::numeric_limits<int64_t>::min();
  const Tensor a = Tensor::FromVector<int64_t>({7, -7, 7, -7, 6, 0, least}, {7});
  const Tensor b = Tensor::FromVector<int64_t>({2, 2, -2, -2, 3, 5, -1}, {7});
  for (const Device& device : TestDevices()) {
    const Tensor x = CopyTo(a, device);
    const Tensor y = CopyTo(b, device);
    EXPECT_EQ(FloorDivide(x, y).ToVector<int64_t>(),
              (std::vector<int64_t>{3, -4, -4, 3, 2, 0, least}));
    EXPECT_EQ((x % y).ToVector<int64_t>(), (std::vector<int64_t>{1, 1, -1, -1, 0, 0, 0}));
    const Tensor narrow = CastCopy(CopyTo(Arange(5), device), DType::kInt32);
    EXPECT_EQ((narrow % 3).dtype(), DType::kInt32);
    EXPECT_EQ((narrow % 3).ToVector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 0, 1}));
    EXPECT_EQ(FloorDivide(Unsqueeze(narrow, 1), narrow + 1).shape(), (Shape{5, 5}));
    EXPECT_EQ(FloorDivide(CastCopy(narrow, DType::kBool), 1).ToVector<int64_t>(),
              (std::vector<int64_t>{0, 1, 1, 1, 1}));
  }
  EXPECT_THROW(FloorDivide(Arange(3), Arange(3)), Error);
  EXPECT_THROW(Arange(3) % 0, Error);
}

}  // namespace
}  // namespace tessera
