// SPDX-License-Identifier: Apache-2.0
#include "optim/lamb/lamb.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "optim/lamb/testdata/lamb_golden.h"
#include "optim/testing/optimizer_check.h"

namespace tessera::optim {
namespace {

TEST(LambTest, AgreesWithThePaper) {
  CheckGolden("lamb", {.lr = 0.01, .exact = kLambGolden, .rounded = kLambRoundedGolden});
  CheckGolden("lamb", {.options = {{"betas", {0.8, 0.95}}, {"eps", 1e-3}},
                       .lr = 0.002,
                       .exact = kLambBetasGolden,
                       .rounded = kLambBetasRoundedGolden});
}

TEST(LambTest, Conduct) { CheckConduct("lamb"); }

// Zeros have no norm to take a ratio of; the step is Adam's.
TEST(LambTest, ZeroNormsLeaveTheRate) {
  const Tensor w = RequireGrad(Zeros({4}, DType::kFloat64));
  const Tensor still = RequireGrad(Full({4}, 1.0, DType::kFloat64));
  Lamb optimizer({{.parameters = {{"w", w}, {"still", still}}}}, {.lr = 0.5, .eps = 1e-12});
  SetGrad(w, Full({4}, 3.0, DType::kFloat64));
  SetGrad(still, Zeros({4}, DType::kFloat64));
  optimizer.Step();
  EXPECT_NEAR(w.ToVector<double>()[2], -0.5, 1e-9);
  EXPECT_EQ(still.ToVector<double>()[2], 1.0);
}

// Beyond one chunk of sums.
TEST(LambTest, NormsAreOfAllElements) {
  const int64_t n = 3 * kUpdateChunk + 37;
  const Tensor w = RequireGrad(Full({n}, 2.0, DType::kFloat64));
  const Tensor same = RequireGrad(Full({n}, 2.0));
  const auto step = [](const Tensor& leaf) {
    Lamb optimizer({{.parameters = {{"w", leaf}}}}, {.lr = 0.25, .eps = 1e-12});
    SetGrad(leaf, Full(leaf.shape(), 7.0, leaf.dtype()));
    optimizer.Step();
  };
  step(w);
  step(same);
  // |w| / |u| = 2 where u is 1.
  EXPECT_NEAR(w.ToVector<double>()[n - 1], 2.0 - 0.25 * 2.0, 1e-9);
  EXPECT_NEAR(same.ToVector<double>()[n - 1], 2.0 - 0.25 * 2.0, 1e-6);
}

TEST(LambTest, RefusesMisuse) {
  const std::vector<ParameterGroup> good = {{.parameters = {{"w", RequireGrad(Zeros({2}))}}}};
  EXPECT_THROW(Lamb(good, {.betas = {1, 0.9}}), Error);
  EXPECT_THROW(Lamb(good, {.eps = 0}), Error);
}

}  // namespace
}  // namespace tessera::optim
