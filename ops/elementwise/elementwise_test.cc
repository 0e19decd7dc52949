#include "ops/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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
                  [](double x) { return 2.5 * x - 1.25; }, false}),
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

TEST(ElementwiseTest, MixedDtypesAndIntegers) {
  const Tensor half = Full({2}, 1.0, DType::kBFloat16);
  EXPECT_EQ(Add(half, Full({2}, 0.5)).dtype(), DType::kFloat32);
  EXPECT_EQ(Add(half, Full({2}, 0.5, DType::kFloat16)).dtype(), DType::kFloat32);
  EXPECT_EQ(Mul(Arange(3), Arange(3)).ToVector<int64_t>(), (std::vector<int64_t>{0, 1, 4}));
  EXPECT_THROW(Div(Arange(3), Arange(3)), Error);
  EXPECT_THROW(Add(Arange(3), half), Error);
  EXPECT_THROW(Add(Full({2}, 1.0), Full({3}, 1.0)), Error);
  EXPECT_THROW(Exp(Arange(3)), Error);
  EXPECT_THROW(Where(Full({2}, 1.0), half, half), Error);
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
