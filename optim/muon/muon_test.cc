// SPDX-License-Identifier: Apache-2.0
#include "optim/muon/muon.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "optim/muon/testdata/muon_golden.h"
#include "optim/testing/optimizer_check.h"

namespace tessera::optim {
namespace {

TEST(MuonTest, AgreesWithPyTorch) {
  CheckGolden("muon", {.lr = 0.01, .exact = kMuonGolden, .rounded = kMuonRoundedGolden});
  CheckGolden("muon", {.options = {{"momentum", 0.9},
                                   {"nesterov", false},
                                   {"ns_steps", 3},
                                   {"ns_coefficients", {2.0, -1.5, 0.5}},
                                   {"adjust_lr_fn", "match_rms_adamw"},
                                   {"betas", {0.8, 0.95}},
                                   {"adam_eps", 1e-6}},
                       .lr = 0.003,
                       .exact = kMuonPlainGolden,
                       .rounded = kMuonPlainRoundedGolden});
}

TEST(MuonTest, Conduct) { CheckConduct("muon", nlohmann::json::object(), 1e-5); }

TEST(MuonTest, WholeMatricesOnly) {
  const auto rule = RuleOf("muon");
  const Parameter matrix{.name = "w", .tensor = Zeros({4, 3})};
  const Parameter table{.name = "wte", .tensor = Zeros({4, 3}), .table = true};
  const Parameter vector{.name = "b", .tensor = Zeros({4})};
  EXPECT_TRUE(rule->NeedsWhole(matrix));
  EXPECT_FALSE(rule->NeedsWhole(table));
  EXPECT_FALSE(rule->NeedsWhole(vector));
  EXPECT_EQ(rule->States(matrix), (std::vector<StateKind>{{"momentum"}}));
  EXPECT_EQ(rule->States(table), (std::vector<StateKind>{{"exp_avg"}, {"exp_avg_sq"}}));
}

// The step is an orthogonal matrix, near enough, whatever the gradient's scale.
TEST(MuonTest, UpdatesHaveSingularValuesNearOne) {
  const Tensor w = RequireGrad(Zeros({2, 2}, DType::kFloat64));
  Muon optimizer({{.parameters = {{"w", w}}}}, {.lr = 1});
  SetGrad(w, Tensor::FromVector<double>({3e-3, 0, 0, -2e-3}, {2, 2}));
  optimizer.Step();
  const std::vector<double> x = w.ToVector<double>();
  EXPECT_NEAR(x[0], -1, 0.35);
  EXPECT_NEAR(x[3], 1, 0.35);
  EXPECT_NEAR(x[1], 0, 1e-12);
}

TEST(MuonTest, RefusesMisuse) {
  const std::vector<ParameterGroup> good = {{.parameters = {{"w", RequireGrad(Zeros({2}))}}}};
  EXPECT_THROW(Muon(good, {.momentum = 1}), Error);
  EXPECT_THROW(Muon(good, {.ns_coefficients = {1, 2}}), Error);
  EXPECT_THROW(Muon(good, {.ns_steps = 0}), Error);
  EXPECT_THROW(Muon(good, {.adjust_lr_fn = "adamw"}), Error);
}

}  // namespace
}  // namespace tessera::optim
