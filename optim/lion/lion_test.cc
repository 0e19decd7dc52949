// SPDX-License-Identifier: Apache-2.0
#include "optim/lion/lion.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "optim/lion/testdata/lion_golden.h"
#include "optim/testing/optimizer_check.h"

namespace tessera::optim {
namespace {

TEST(LionTest, AgreesWithThePaper) {
  CheckGolden("lion", {.lr = 0.01, .exact = kLionGolden, .rounded = kLionRoundedGolden});
  CheckGolden("lion", {.options = {{"betas", {0.95, 0.98}}},
                       .lr = 0.003,
                       .exact = kLionBetasGolden,
                       .rounded = kLionBetasRoundedGolden});
}

TEST(LionTest, Conduct) { CheckConduct("lion"); }

TEST(LionTest, NoGradientIsNoSign) {
  const Tensor w = RequireGrad(Full({3}, 1.0));
  Lion optimizer({{.parameters = {{"w", w}}}}, {.lr = 0.5});
  SetGrad(w, Zeros({3}));
  optimizer.Step();
  EXPECT_EQ(w.ToVector<float>(), std::vector<float>(3, 1.0f));
}

TEST(LionTest, RefusesMisuse) {
  const std::vector<ParameterGroup> good = {{.parameters = {{"w", RequireGrad(Zeros({2}))}}}};
  EXPECT_THROW(Lion(good, {.betas = {0.9, 1}}), Error);
  EXPECT_THROW(Lion(good, {.betas = {0.9}}), Error);
  EXPECT_THROW(Lion(good, {.lr = -1}), Error);
}

}  // namespace
}  // namespace tessera::optim
