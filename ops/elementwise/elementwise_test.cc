// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "autograd/autograd.h"
#include "core/cpu_isa.h"
#include "core/random.h"
#include "ops/cast/cast.h"
#include "ops/reduction/sum.h"
#include "ops/testing/op_check.h"

namespace tessera {
namespace {

using Function = double (*)(double);
using Operator = Tensor (*)(const Tensor&);

// The positive half line, away from zero by 0.2.
Tensor Positive(const Shape& shape, uint64_t seed) {
  Tensor t = RandomTensor(shape, seed);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<double>()[i] = 0.2 + std::abs(t.data<double>()[i]);
  return t;
}

// Away from zero, where some functions have a kink.
Tensor AwayFromZero(const Shape& shape, uint64_t seed) {
  Tensor t = RandomTensor(shape, seed, 2.0);
  for (int64_t i = 0; i < t.numel(); ++i) {
    double& x = t.data<double>()[i];
    x += x < 0 ? -0.05 : 0.05;
  }
  return t;
}

struct UnaryCase {
  const char* name;
  Operator op;
  Function reference;
  bool positive;
};

class UnaryTest : public testing::TestWithParam<UnaryCase> {};

TEST_P(UnaryTest, MatchesTheReference) {
  const UnaryCase& c = GetParam();
  for (const Shape& shape : {Shape{1}, Shape{3, 7}, Shape{2, 1, 37}, Shape{}, Shape{0, 4}}) {
    CheckOp({.name = c.name,
             .op = [&](const Tensors& in) { return Tensors{c.op(in[0])}; },
             .reference =
                 [&](const Tensors& in) {
                   Tensor y = EmptyLike(in[0]);
                   for (int64_t i = 0; i < y.numel(); ++i) {
                     y.data<double>()[i] = c.reference(in[0].data<double>()[i]);
                   }
                   return Tensors{y};
                 },
             .inputs = {c.positive ? Positive(shape, 1) : AwayFromZero(shape, 1)},
             .scale_floor = 1});
  }
}

double SigmoidOf(double x) { return 1 / (1 + std::exp(-x)); }

INSTANTIATE_TEST_SUITE_P(
    All, UnaryTest,
    testing::Values(
        UnaryCase{"exp", Exp, std::exp, false}, UnaryCase{"log", Log, std::log, true},
        UnaryCase{"sqrt", Sqrt, std::sqrt, true},
        UnaryCase{"rsqrt", Rsqrt, [](double x) { return 1 / std::sqrt(x); }, true},
        UnaryCase{"square", Square, [](double x) { return x * x; }, false},
        UnaryCase{"abs", Abs, std::fabs, false}, UnaryCase{"tanh", Tanh, std::tanh, false},
        UnaryCase{"sigmoid", Sigmoid, SigmoidOf, false},
        UnaryCase{"softplus", Softplus, [](double x) { return std::log1p(std::exp(x)); }, false},
        UnaryCase{"relu", Relu, [](double x) { return x > 0 ? x : 0.0; }, false},
        UnaryCase{"silu", Silu, [](double x) { return x * SigmoidOf(x); }, false},
        UnaryCase{"normal_cdf", NormalCdf,
                  [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }, false},
        UnaryCase{"gelu", Gelu, [](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); },
                  false},
        UnaryCase{"gelu_tanh", GeluTanh,
                  [](double x) {
                    return 0.5 * x *
                           (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
                  },
                  false},
        UnaryCase{"neg", Neg, [](double x) { return -x; }, false},
        UnaryCase{"affine", [](const Tensor& x) { return Affine(x, 2.5, -1.25); },
                  [](double x) { return 2.5 * x - 1.25; }, false},
        UnaryCase{"sin", Sin, std::sin, false}, UnaryCase{"cos", Cos, std::cos, false},
        UnaryCase{"expm1", Expm1, std::expm1, false}, UnaryCase{"log1p", Log1p, std::log1p, true},
        UnaryCase{"pow_two", [](const Tensor& x) { return Pow(x, 2); },
                  [](double x) { return x * x; }, false},
        UnaryCase{"pow_three", [](const Tensor& x) { return Pow(x, 3); },
                  [](double x) { return x * x * x; }, false},
        UnaryCase{"pow_half", [](const Tensor& x) { return Pow(x, 0.5); }, std::sqrt, true},
        UnaryCase{"pow_fraction", [](const Tensor& x) { return Pow(x, -1.3); },
                  [](double x) { return std::pow(x, -1.3); }, true},
        UnaryCase{"pow_zero", [](const Tensor& x) { return Pow(x, 0); }, [](double) { return 1.0; },
                  false},
        UnaryCase{"clamp", [](const Tensor& x) { return Clamp(x, -0.501, 1.001); },
                  [](double x) { return std::min(std::max(x, -0.501), 1.001); }, false},
        UnaryCase{
            "clamp_below",
            [](const Tensor& x) { return Clamp(x, 0, std::numeric_limits<double>::infinity()); },
            [](double x) { return std::max(x, 0.0); }, false},
        UnaryCase{"quotient", [](const Tensor& x) { return 1.5 / x; },
                  [](double x) { return 1.5 / x; }, true},
        UnaryCase{"operators_with_numbers",
                  [](const Tensor& x) { return 3 - (2 * x + 1) / 4 - (-x - 0.5) * 2 + (1 + x); },
                  [](double x) { return 3 - (2 * x + 1) / 4 - (-x - 0.5) * 2 + (1 + x); }, false},
        UnaryCase{"operators", [](const Tensor& x) { return x * x / (x * x + 1.0) + x - Exp(x); },
                  [](double x) { return x * x / (x * x + 1) + x - std::exp(x); }, false}),
    [](const auto& info) { return std::string(info.param.name); });

struct BinaryCase {
  const char* name;
  Tensor (*op)(const Tensor&, const Tensor&);
  double (*reference)(double, double);
};

class BinaryTest : public testing::TestWithParam<BinaryCase> {};

TEST_P(BinaryTest, BroadcastsAndMatchesTheReference) {
  const BinaryCase& c = GetParam();
  const std::pair<Shape, Shape> shapes[] = {
      {{5}, {5}},          {{3, 19}, {19}}, {{3, 19}, {3, 1}},
      {{2, 1, 4}, {3, 1}}, {{1}, {2, 3}},   {{4, 1, 33}, {2, 33}},
      {{}, {3}},           {{0, 3}, {3}},   {{2, 3, 4}, {1, 1}},
  };
  for (const auto& [sa, sb] : shapes) {
    CheckOp({.name = c.name,
             .op = [&](const Tensors& in) { return Tensors{c.op(in[0], in[1])}; },
             .reference =
                 [&](const Tensors& in) {
                   const Shape shape = BroadcastShapes(in[0].shape(), in[1].shape(), "test");
                   Tensor y = Empty(shape, DType::kFloat64);
                   const Shape strides = ContiguousStrides(shape);
                   const auto at = [&](const Tensor& t, int64_t i) {
                     int64_t offset = 0;
                     for (int d = 0; d < t.ndim(); ++d) {
                       const int g = d + shape.ndim() - t.ndim();
                       if (t.size(d) != 1) offset += i / strides[g] % shape[g] * t.stride(d);
                     }
                     return t.data<double>()[offset];
                   };
                   for (int64_t i = 0; i < y.numel(); ++i) {
                     y.data<double>()[i] = c.reference(at(in[0], i), at(in[1], i));
                   }
                   return Tensors{y};
                 },
             .inputs = {RandomTensor(sa, 1), AwayFromZero(sb, 2)},
             .sum_length = 30,
             .scale_floor = 1,
             // A quotient near a kink of its divisor has large derivatives.
             .gradcheck_tolerance = 1e-5});
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BinaryTest,
    testing::Values(
        BinaryCase{"add", Add, [](double a, double b) { return a + b; }},
        BinaryCase{"sub", Sub, [](double a, double b) { return a - b; }},
        BinaryCase{"mul", Mul, [](double a, double b) { return a * b; }},
        BinaryCase{"maximum", Maximum, [](double a, double b) { return a > b ? a : b; }},
        BinaryCase{"minimum", Minimum, [](double a, double b) { return a < b ? a : b; }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ElementwiseTest, Div) {
  CheckOp({.name = "div",
           .op = [](const Tensors& in) { return Tensors{Div(in[0], in[1])}; },
           .reference =
               [](const Tensors& in) {
                 Tensor y = EmptyLike(in[0]);
                 for (int64_t i = 0; i < y.numel(); ++i) {
                   y.data<double>()[i] = in[0].data<double>()[i] / in[1].data<double>()[i % 5];
                 }
                 return Tensors{y};
               },
           .inputs = {RandomTensor({3, 5}, 1), Positive({5}, 2)}});
}

TEST(ElementwiseTest, PowOfTwoTensors) {
  CheckOp({.name = "pow",
           .op = [](const Tensors& in) { return Tensors{Pow(in[0], in[1])}; },
           .reference =
               [](const Tensors& in) {
                 Tensor y = EmptyLike(in[0]);
                 for (int64_t i = 0; i < y.numel(); ++i) {
                   y.data<double>()[i] =
                       std::pow(in[0].data<double>()[i], in[1].data<double>()[i % 37]);
                 }
                 return Tensors{y};
               },
           .inputs = {Positive({3, 37}, 1), RandomTensor({37}, 2)},
           .sum_length = 9,
           .gradcheck_tolerance = 1e-5});
  // Gradients where the formula is 0 times infinity.
  const Tensor base = RequireGrad(Tensor::FromVector<float>({0, 0, 2, -3}, {4}));
  const Tensor exponent = RequireGrad(Tensor::FromVector<float>({0, 2, 0, 2}, {4}));
  Backward(Sum(Pow(base, exponent)));
  EXPECT_EQ(Grad(base).ToVector<float>(), (std::vector<float>{0, 0, 0, -6}));
  const std::vector<float> slope = Grad(exponent).ToVector<float>();
  EXPECT_EQ(slope[0], 0);
  EXPECT_EQ(slope[1], 0);
  EXPECT_NEAR(slope[2], std::log(2), 1e-6);
  EXPECT_TRUE(std::isnan(slope[3]));  // the logarithm of a negative number
}

// Calls check(name of the instruction set) for each that this machine has.
template <typename Check>
void ForEachIsa(Check check) {
  const CpuIsa best = ActiveIsa();
  for (const CpuIsa isa : kKernelIsas) {
    if (isa > best) continue;
    SetActiveIsa(isa);
    check(CpuIsaName(isa));
  }
  SetActiveIsa(best);
}

// Any float32, infinities and NaN among them.
Tensor AnyFloats(int64_t n, uint64_t seed) {
  Tensor t = Empty({n}, DType::kFloat32);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = RandomBits(RandomKey::FromSeed(seed), static_cast<uint64_t>(i));
    std::memcpy(t.data<float>() + i, &bits, sizeof(bits));
  }
  return t;
}

TEST(ElementwiseTest, SineAndCosineOfAnyArgument) {
  const Tensor moderate = CastCopy(RandomTensor({30001}, 1, 3000.0), DType::kFloat32);
  const Tensor any = AnyFloats(30001, FreshSeed());
  ForEachIsa([&](auto isa) {
    for (const Tensor& x : {moderate, any}) {
      const std::vector<double> at = x.ToVector<double>();
      const std::vector<double> sine = Sin(x).ToVector<double>();
      const std::vector<double> cosine = Cos(x).ToVector<double>();
      for (size_t i = 0; i < at.size(); ++i) {
        if (!std::isfinite(at[i])) {
          ASSERT_TRUE(std::isnan(sine[i]) && std::isnan(cosine[i])) << isa << " " << at[i];
          continue;
        }
        ASSERT_NEAR(sine[i], std::sin(at[i]), 0x1p-23) << isa << " sin " << at[i];
        ASSERT_NEAR(cosine[i], std::cos(at[i]), 0x1p-23) << isa << " cos " << at[i];
      }
    }
  });
}

// Numbers of one step of float32 as a function of their size, 0 for equal ones of any kind.
double Steps(float actual, double expected) {
  const float rounded = static_cast<float>(expected);
  if (actual == rounded || (std::isnan(actual) && std::isnan(expected))) return 0;
  const float size = std::abs(rounded);
  return std::abs(actual - expected) / (std::nextafter(size, 2 * size + 1) - size);
}

TEST(ElementwiseTest, PowersAreThoseOfTheLibrary) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> kinds = {0,
                                    -0.0f,
                                    1,
                                    -1,
                                    2,
                                    -2,
                                    3,
                                    -3,
                                    0.5f,
                                    -0.5f,
                                    16777215,
                                    -16777215,
                                    3e7f,
                                    1e30f,
                                    inf,
                                    -inf,
                                    std::nanf(""),
                                    1e-45f,
                                    -1e30f,
                                    7.5f};
  const auto n = static_cast<int64_t>(kinds.size());
  const Tensor some = Tensor::FromVector<float>(kinds, {n});
  const Tensor bases[] = {AnyFloats(30001, FreshSeed()), some.AsStrided({n, 1}, {1, 1}, 0),
                          CastCopy(Positive({30001}, 3), DType::kFloat32)};
  const Tensor exponents[] = {AnyFloats(30001, FreshSeed() + 1), some,
                              CastCopy(RandomTensor({30001}, 4, 20), DType::kFloat32)};
  ForEachIsa([&](auto isa) {
    for (int k = 0; k < 3; ++k) {
      const Tensor y = Pow(bases[k], exponents[k]);
      const std::vector<float> power = y.ToVector<float>();
      const std::vector<double> base = bases[k].ToVector<double>();
      const std::vector<double> exponent = exponents[k].ToVector<double>();
      for (size_t i = 0; i < power.size(); ++i) {
        const double a = base[base.size() < power.size() ? i / exponent.size() : i];
        const double b = exponent[i % exponent.size()];
        ASSERT_LE(Steps(power[i], std::pow(a, b)), 0.51) << isa << ": " << a << "^" << b;
      }
    }
  });
}

TEST(ElementwiseTest, WhereAndMaskedFill) {
  const Tensor mask = Tensor::FromVector<uint8_t>({1, 0, 0, 1, 1, 0}, {2, 3});
  CheckOp({.name = "where",
           .op = [&](const Tensors& in) { return Tensors{Where(in[2], in[0], in[1])}; },
           .reference =
               [&](const Tensors& in) {
                 Tensor y = Empty({2, 3}, DType::kFloat64);
                 for (int64_t i = 0; i < 6; ++i) {
                   y.data<double>()[i] = mask.data<uint8_t>()[i] != 0 ? in[0].data<double>()[i]
                                                                      : in[1].data<double>()[i % 3];
                 }
                 return Tensors{y};
               },
           .inputs = {RandomTensor({2, 3}, 1), RandomTensor({3}, 2), mask}});
  const Tensor filled = MaskedFill(Full({2, 3}, 1.0), mask, -5.0);
  EXPECT_EQ(filled.ToVector<float>(), (std::vector<float>{-5, 1, 1, -5, -5, 1}));
  CheckOp({.name = "where with numbers",
           .op =
               [&](const Tensors& in) {
                 return Tensors{Where(in[1], in[0], -0.5), Where(in[1], 2, in[0])};
               },
           .reference =
               [&](const Tensors& in) {
                 Tensor a = EmptyLike(in[0]);
                 Tensor b = EmptyLike(in[0]);
                 for (int64_t i = 0; i < 6; ++i) {
                   const bool holds = mask.data<uint8_t>()[i] != 0;
                   const double x = in[0].data<double>()[i];
                   a.data<double>()[i] = holds ? x : -0.5;
                   b.data<double>()[i] = holds ? 2 : x;
                 }
                 return Tensors{a, b};
               },
           .inputs = {RandomTensor({2, 3}, 3), mask}});
  EXPECT_EQ(Where(mask, 1, -1, DType::kInt64).ToVector<int64_t>(),
            (std::vector<int64_t>{1, -1, -1, 1, 1, -1}));
}

TEST(ElementwiseTest, FractionsBesideWholeNumbersAreRefused) {
  const Tensor mask = Tensor::FromVector<uint8_t>({1, 0}, {2});
  const Tensor whole = Tensor::FromVector<int64_t>({7, 8}, {2});
  EXPECT_THROW(Where(mask, whole, 0.5), Error);
  EXPECT_THROW(Where(mask, 0.5, whole), Error);
  EXPECT_THROW(MaskedFill(whole, mask, -0.5), Error);
  EXPECT_EQ(Where(mask, whole, 3).ToVector<int64_t>(), (std::vector<int64_t>{7, 3}));
  // Beside a mask a whole number is int64.
  const Tensor beside = Where(mask, CastCopy(mask, DType::kBool), 2.0);
  EXPECT_EQ(beside.dtype(), DType::kInt64);
  EXPECT_EQ(beside.ToVector<int64_t>(), (std::vector<int64_t>{1, 2}));
}

TEST(ElementwiseTest, ComparisonsAndNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor a = Tensor::FromVector<float>({1, 2, nan}, {3});
  const Tensor b = Tensor::FromVector<float>({2, 2, 0}, {3});
  EXPECT_EQ(Compare(a, b, Comparison::kLess).ToVector<int>(), (std::vector<int>{1, 0, 0}));
  EXPECT_EQ(Compare(a, b, Comparison::kNotEqual).ToVector<int>(), (std::vector<int>{1, 0, 1}));
  EXPECT_EQ(Compare(a, 2.0, Comparison::kGreaterEqual).ToVector<int>(),
            (std::vector<int>{0, 1, 0}));
  EXPECT_TRUE(std::isnan(Relu(a).ToVector<float>()[2]));
}

// An extremum is NaN where one of its operands is, of every dtype, beside a number and at the end
// of a row of vectors; the gradient goes on, as PyTorch's.
TEST(ElementwiseTest, ExtremaKeepNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> left(19, 1.0), right(19, 2.0);
  left[0] = right[8] = left[17] = right[18] = nan;
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const Device& device : TestDevices()) {
      const auto at = [&](const std::vector<double>& x) {
        return CopyTo(CastCopy(Tensor::FromVector<double>(x, {19}), dtype), device);
      };
      const Tensor a = RequireGrad(at(left));
      const Tensor b = RequireGrad(at(right));
      const Tensor most = Maximum(a, b);
      const Tensor least = Minimum(a, b);
      const std::vector<double> y = most.ToVector<double>();
      const std::vector<double> z = least.ToVector<double>();
      for (size_t i = 0; i < y.size(); ++i) {
        const bool none = i == 0 || i == 8 || i >= 17;
        EXPECT_EQ(std::isnan(y[i]), none) << dtype << " " << i;
        EXPECT_EQ(std::isnan(z[i]), none) << dtype << " " << i;
        if (!none) {
          EXPECT_EQ(y[i] - z[i], 1) << dtype << " " << i;
        }
      }
      Backward(Sum(most));
      const std::vector<double> to_a = Grad(a).ToVector<double>();
      const std::vector<double> to_b = Grad(b).ToVector<double>();
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(to_a[i], std::isnan(y[i]) ? 1 : 0) << dtype << " " << i;
        EXPECT_EQ(to_b[i], 1) << dtype << " " << i;
      }
    }
  }
  const Tensor x = RequireGrad(Tensor::FromVector<float>({static_cast<float>(nan), -1, 1}, {3}));
  Backward(Sum(Relu(x)));
  EXPECT_EQ(Grad(x).ToVector<double>(), (std::vector<double>{1, 0, 1}));
}

// A number that the dtype cannot hold is smaller or larger than all it holds.
TEST(ElementwiseTest, ComparesWithNumbersOutsideOfTheDtype) {
  for (const Device& device : TestDevices()) {
    const auto compare = [&](DType dtype, double number) {
      const Tensor x = CopyTo(CastCopy(Tensor::FromVector<int64_t>({0, 1}, {2}), dtype), device);
      std::vector<int> all;
      for (const Comparison comparison :
           {Comparison::kLess, Comparison::kEqual, Comparison::kGreaterEqual}) {
        for (const int holds : Compare(x, number, comparison).ToVector<int>()) all.push_back(holds);
      }
      return all;
    };
    const std::vector<int> above = {1, 1, 0, 0, 0, 0};
    const std::vector<int> below = {0, 0, 0, 0, 1, 1};
    for (const DType dtype : {DType::kUInt8, DType::kBool, DType::kInt32, DType::kInt64}) {
      EXPECT_EQ(compare(dtype, 300), above) << DTypeName(dtype);
      EXPECT_EQ(compare(dtype, 2), above) << DTypeName(dtype);
      EXPECT_EQ(compare(dtype, -1), below) << DTypeName(dtype);
      EXPECT_EQ(compare(dtype, 0.5), (std::vector<int>{1, 0, 0, 0, 0, 1})) << DTypeName(dtype);
      for (const double large : {1e10, 1e30, HUGE_VAL}) {
        EXPECT_EQ(compare(dtype, large), above) << DTypeName(dtype) << " " << large;
        EXPECT_EQ(compare(dtype, -large), below) << DTypeName(dtype) << " " << large;
      }
      EXPECT_EQ(compare(dtype, std::nan("")), std::vector<int>(6, 0));
    }
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
      EXPECT_EQ(compare(dtype, 1e300), above) << DTypeName(dtype);
      EXPECT_EQ(compare(dtype, -1e300), below) << DTypeName(dtype);
    }
  }
}

TEST(ElementwiseTest, MixedDtypesAndIntegers) {
  const Tensor half = Full({2}, 1.0, DType::kBFloat16);
  EXPECT_EQ(Add(half, Full({2}, 0.5)).dtype(), DType::kFloat32);
  EXPECT_EQ(Add(half, Full({2}, 0.5, DType::kFloat16)).dtype(), DType::kFloat32);
  EXPECT_EQ(Mul(Arange(3), Arange(3)).ToVector<int64_t>(), (std::vector<int64_t>{0, 1, 4}));
  EXPECT_EQ((2 * Arange(3) - 1).ToVector<int64_t>(), (std::vector<int64_t>{-1, 1, 3}));
  EXPECT_EQ((5 - Arange(3)).ToVector<int64_t>(), (std::vector<int64_t>{5, 4, 3}));
  EXPECT_THROW(Arange(3) + 0.5, Error);
  EXPECT_THROW(Clamp(half, 1, 0), Error);
  EXPECT_THROW(Add(Full({2}, 1.0), Full({3}, 1.0)), Error);
  EXPECT_THROW(Exp(Arange(3)), Error);
  EXPECT_THROW(Pow(Arange(3), Arange(3)), Error);
  EXPECT_THROW(Where(Full({2}, 1.0), half, half), Error);
  EXPECT_EQ(Add(Arange(2), half).dtype(), DType::kBFloat16);
  EXPECT_EQ((Arange(3) / 2).ToVector<float>(), (std::vector<float>{0, 0.5, 1}));
  EXPECT_EQ((2 / (Arange(2) + 1)).ToVector<float>(), (std::vector<float>{2, 1}));
  EXPECT_EQ(Div(Arange(3), Arange(3) + 1).ToVector<float>(),
            (std::vector<float>{0, 0.5, 2.0f / 3}));
}

template <typename T>
Tensor Numbers(const std::vector<T>& values) {
  return Tensor::FromVector<T>(values, {static_cast<int64_t>(values.size())});
}

TEST(ElementwiseTest, IntegersOfEveryWidth) {
  for (const Device& device : TestDevices()) {
    for (const DType dtype : {DType::kInt64, DType::kInt32, DType::kUInt8}) {
      const Tensor a = CopyTo(CastCopy(Numbers<int64_t>({3, 4, 200}), dtype), device);
      const Tensor b = CopyTo(CastCopy(Numbers<int64_t>({5, 2, 100}), dtype), device);
      const auto check = [&](const Tensor& y, const std::vector<int64_t>& expected) {
        EXPECT_EQ(y.dtype(), dtype);
        EXPECT_EQ(y.ToVector<int64_t>(), CastCopy(Numbers(expected), dtype).ToVector<int64_t>());
      };
      check(a + b, {8, 6, 300});
      check(a - b, {-2, 2, 100});
      check(a * b, {15, 8, 20000});
      check(Maximum(a, b), {5, 4, 200});
      check(Minimum(a, b), {3, 2, 100});
      check(Square(a), {9, 16, 40000});
      check(2 * a + 1, {7, 9, 401});
      check(-a, {-3, -4, -200});
      check(Clamp(a, 4, 100), {4, 4, 100});
      check(Clamp(a, -INFINITY, 3), {3, 3, 3});
      check(Clamp(a, 3.0, 1e300), {3, 4, 200});
      check(Pow(a, 3), {27, 64, 8000000});
      check(Pow(a, 1), {3, 4, 200});
      check(Pow(a, 0), {1, 1, 1});
      EXPECT_THROW(Clamp(a, 0.5, 2), Error);
      EXPECT_THROW(Pow(a, 0.5), Error);
      EXPECT_THROW(Pow(a, -1), Error);
      if (dtype != DType::kUInt8) check(Abs(2 - a), {1, 2, 198});
    }
    const Tensor narrow = CopyTo(Tensor::FromVector<int32_t>({2147483647, 7}, {2}), device);
    EXPECT_EQ((narrow + 1).ToVector<int64_t>(), (std::vector<int64_t>{-2147483648, 8})) << "wraps";
    const Tensor sum = narrow + CopyTo(Numbers<int64_t>({1, 1}), device);
    EXPECT_EQ(sum.dtype(), DType::kInt64);
    EXPECT_EQ(sum.ToVector<int64_t>(), (std::vector<int64_t>{2147483648, 8}));
    EXPECT_EQ(Compare(narrow, 7.5, Comparison::kLess).ToVector<int>(), (std::vector<int>{0, 1}));
  }
}

TEST(ElementwiseTest, Masks) {
  for (const Device& device : TestDevices()) {
    const Tensor a = CopyTo(CastCopy(Numbers<int64_t>({0, 0, 1, 1}), DType::kBool), device);
    const Tensor b = CopyTo(CastCopy(Numbers<int64_t>({0, 1, 0, 1}), DType::kBool), device);
    const auto check = [](const Tensor& y, DType dtype, const std::vector<int>& expected) {
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_EQ(y.ToVector<int>(), expected);
    };
    check(a * b, DType::kBool, {0, 0, 0, 1});
    check(a + b, DType::kBool, {0, 1, 1, 1});
    check(Maximum(a, b), DType::kBool, {0, 1, 1, 1});
    check(Minimum(a, b), DType::kBool, {0, 0, 0, 1});
    check(Abs(a), DType::kBool, {0, 0, 1, 1});
    check(1 - a, DType::kInt64, {1, 1, 0, 0});
    check(Clamp(a, 1, 5), DType::kInt64, {1, 1, 1, 1});
    check(Pow(a, 3), DType::kInt64, {0, 0, 1, 1});
    check(a * CopyTo(Full({4}, 2.0), device), DType::kFloat32, {0, 0, 2, 2});
    check(a + CastCopy(b, DType::kInt32), DType::kInt32, {0, 1, 1, 2});
    EXPECT_THROW(a - b, Error);
    EXPECT_THROW(a * 0.5, Error);
  }
}

// Of two dtypes, and of a mask beside one, gradients come back in the operand's own.
TEST(ElementwiseTest, PromotedOperandsGetTheirGradients) {
  const Tensor x = RequireGrad(Full({3}, 2.0));
  const Tensor mask = CastCopy(Arange(3), DType::kBool);
  Backward(Sum(x * mask));
  EXPECT_EQ(Grad(x).ToVector<float>(), (std::vector<float>{0, 1, 1}));
  const Tensor half = RequireGrad(Full({3}, 2.0, DType::kBFloat16));
  Backward(Sum(Where(mask, half, Full({3}, 0.5))));
  EXPECT_EQ(Grad(half).ToVector<float>(), (std::vector<float>{0, 1, 1}));
  CheckOp({.name = "where of a mask",
           .op =
               [mask](const Tensors& in) {
                 const Tensor here = CopyTo(mask, in[0].device());
                 return Tensors{Where(here, in[0], Cast(in[1], DType::kFloat64))};
               },
           .reference = nullptr,
           .inputs = {RandomTensor({3}, 1), RandomTensor({3}, 2)}});
}

TEST(ElementwiseTest, AssignmentsMakeNewTensors) {
  Tensor x = Full({2}, 6.0);
  const Tensor before = x;
  x += 2;
  x -= Full({2}, 1.0);
  x *= 4;
  x /= Full({2}, 2.0);
  EXPECT_EQ(x.ToVector<float>(), (std::vector<float>{14, 14}));
  EXPECT_EQ(before.ToVector<float>(), (std::vector<float>{6, 6}));
  const Tensor w = RequireGrad(Full({2}, 3.0));
  Tensor y = w;
  y *= w;
  Backward(Sum(y));
  EXPECT_EQ(Grad(w).ToVector<float>(), (std::vector<float>{6, 6}));
}

// An element's bits must not depend on where a shard begins or ends.
TEST(ElementwiseTest, BitsDoNotDependOnTheTail) {
  const Tensor x = CastCopy(RandomTensor({1000}, 5), DType::kFloat32);
  const std::vector<float> whole = Gelu(x).ToVector<float>();
  for (int64_t begin : {1, 7, 16, 990}) {
    const std::vector<float> part = Gelu(x.AsStrided({1000 - begin}, {1}, begin)).ToVector<float>();
    for (size_t i = 0; i < part.size(); ++i) {
      ASSERT_EQ(part[i], whole[i + static_cast<size_t>(begin)]);
    }
  }
}

}  // namespace
}  // namespace tessera
