#include "ops/bias_gelu/bias_gelu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "autograd/autograd.h"
#include "core/thread_pool.h"
#include "ops/elementwise/elementwise.h"
#include "ops/testing/op_check.h"

namespace tessera {
namespace {

double GeluOf(double x, GeluKind kind) {
  if (kind == GeluKind::kExact) return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(x, 3))));
}

class BiasGeluTest : public testing::TestWithParam<GeluKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, BiasGeluTest, testing::Values(GeluKind::kExact, GeluKind::kTanh),
                         [](const auto& info) {
                           return info.param == GeluKind::kTanh ? "Tanh" : "Exact";
                         });

TEST_P(BiasGeluTest, MatchesTheFormula) {
  const GeluKind kind = GetParam();
  for (const Shape& shape : {Shape{5}, Shape{2, 3, 37}, Shape{70, 1}, Shape{1, 16}, Shape{0, 4},
                             Shape{3, 0}, Shape{300, 48}}) {
    const int64_t n = shape[-1];
    CheckOp({.name = "bias_gelu",
             .op = [&](const Tensors& in) { return Tensors{BiasGelu(in[0], in[1], kind)}; },
             .reference =
                 [&](const Tensors& in) {
                   Tensor y = EmptyLike(in[0]);
                   for (int64_t i = 0; i < y.numel(); ++i) {
                     y.data<double>()[i] =
                         GeluOf(in[0].data<double>()[i] + in[1].data<double>()[i % n], kind);
                   }
                   return Tensors{y};
                 },
             .inputs = {RandomTensor(shape, 1, 2.0), RandomTensor({n}, 2)},
             .sum_length = 300,
             .scale_floor = 1});
  }
}

// In float32 the fused form is the composed one to the bit, forward and backward, whatever the
// number of threads: a switch between them changes no run.
TEST_P(BiasGeluTest, EqualsTheComposition) {
  const GeluKind kind = GetParam();
  struct Result {
    std::vector<float> y, dx, dbias;
    bool operator==(const Result&) const = default;
  };
  const auto run = [](const OpFn& op) {
    const Tensor x = RequireGrad(CastCopy(RandomTensor({301, 45}, 3, 2.0), DType::kFloat32));
    const Tensor bias = RequireGrad(CastCopy(RandomTensor({45}, 4), DType::kFloat32));
    const Tensor y = op({x, bias})[0];
    Backward({y}, {CastCopy(RandomTensor({301, 45}, 5), DType::kFloat32)});
    return Result{y.ToVector<float>(), Grad(x).ToVector<float>(), Grad(bias).ToVector<float>()};
  };
  const OpFn fused = [=](const Tensors& in) { return Tensors{BiasGelu(in[0], in[1], kind)}; };
  const OpFn composed = [=](const Tensors& in) {
    const Tensor sum = Add(in[0], in[1]);
    return Tensors{kind == GeluKind::kTanh ? GeluTanh(sum) : Gelu(sum)};
  };
  SetNumThreads(1);
  const Result expected = run(composed);
  EXPECT_TRUE(run(fused) == expected);
  SetNumThreads(3);
  EXPECT_TRUE(run(fused) == expected);
  SetNumThreads(AvailableCores());
}

TEST(BiasGeluErrorsTest, RefusesWhatDoesNotFit) {
  EXPECT_THROW(BiasGelu(Zeros({2, 3}), Zeros({2}), GeluKind::kTanh), Error);
  EXPECT_THROW(BiasGelu(Zeros({2, 3}), Zeros({1, 3}), GeluKind::kTanh), Error);
  EXPECT_THROW(BiasGelu(Zeros({}), Zeros({1}), GeluKind::kTanh), Error);
  EXPECT_THROW(BiasGelu(Zeros({2, 3}), Zeros({3}, DType::kFloat64), GeluKind::kExact), Error);
  EXPECT_THROW(BiasGelu(Arange(3), Arange(3), GeluKind::kExact), Error);
}

}  // namespace
}  // namespace tessera
