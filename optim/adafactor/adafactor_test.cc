// SPDX-License-Identifier: Apache-2.0
#include "optim/adafactor/adafactor.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "optim/adafactor/testdata/adafactor_golden.h"
#include "optim/testing/optimizer_check.h"

namespace tessera::optim {
namespace {

TEST(AdafactorTest, AgreesWithPyTorch) {
  CheckGolden("adafactor",
              {.lr = 0.02, .exact = kAdafactorGolden, .rounded = kAdafactorRoundedGolden});
  CheckGolden("adafactor", {.options = {{"clip_threshold", 1.1}, {"beta2_decay", -0.6}},
                            .lr = 0.01,
                            .exact = kAdafactorClippedGolden,
                            .rounded = kAdafactorClippedRoundedGolden});
}

TEST(AdafactorTest, AgreesWithThePaper) {
  CheckGolden("adafactor",
              {.options = {{"eps", 1e-4}, {"eps2", 1e-2}, {"beta1", 0.9}, {"clip_threshold", 0.5}},
               .lr = 0.01,
               .exact = kAdafactorMomentumGolden,
               .rounded = kAdafactorMomentumRoundedGolden});
  CheckGolden("adafactor", {.options = {{"scale_parameter", false}},
                            .lr = 0.01,
                            .exact = kAdafactorUnscaledGolden,
                            .rounded = kAdafactorUnscaledRoundedGolden});
}

TEST(AdafactorTest, Conduct) {
  CheckConduct("adafactor");
  CheckConduct("adafactor", {{"beta1", 0.9}, {"scale_parameter", false}});
}

TEST(AdafactorTest, StatesAreRowsAndColumns) {
  const auto rule = RuleOf("adafactor", {{"beta1", 0.5}});
  const auto optimizer = rule->Make({{.parameters = {{"stack", RequireGrad(Zeros({2, 3, 4}))},
                                                     {"vector", RequireGrad(Zeros({5}))}}}},
                                    1e-2);
  const auto states = optimizer->StateDict();
  EXPECT_EQ(states.at("stack.exp_avg_sq_row").shape(), (Shape{2, 3}));
  EXPECT_EQ(states.at("stack.exp_avg_sq_col").shape(), (Shape{2, 4}));
  EXPECT_EQ(states.at("stack.exp_avg").shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(states.at("vector.exp_avg_sq").shape(), (Shape{5}));
  EXPECT_EQ(states.size(), 6u);
}

TEST(AdafactorTest, RefusesMisuse) {
  const std::vector<ParameterGroup> good = {{.parameters = {{"w", RequireGrad(Zeros({2}))}}}};
  EXPECT_THROW(Adafactor(good, {.beta2_decay = 0.1}), Error);
  EXPECT_THROW(Adafactor(good, {.eps = -1}), Error);
  EXPECT_THROW(Adafactor(good, {.clip_threshold = 0}), Error);
  EXPECT_THROW(Adafactor(good, {.beta1 = 1}), Error);
}

}  // namespace
}  // namespace tessera::optim
