// SPDX-License-Identifier: Apache-2.0
#include "optim/modules/module_parameters.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/reduction.h"
#include "optim/sgd/sgd.h"

namespace tessera::optim {
namespace {

// A table that is looked up, and multiplied by: two uses of one weight, and a layer that is not
// tied.
struct TiedNet : nn::Module {
  explicit TiedNet(const nn::Scope& scope) : Module(scope) {}
  Tensor Loss(const Tensor& ids) const {
    return Mean(Square(head.Forward(middle.Forward(wte.Forward(ids)))));
  }
  nn::VocabParallelEmbedding wte{{.rows = 5, .width = 4, .init = nn::Init::Normal(1)},
                                 Child("wte")};
  nn::ReplicatedLinear middle{{.in_features = 4, .out_features = 4}, Child("middle")};
  nn::VocabParallelHead head{wte.weight(), Child("head")};
};

Tensor Ids() { return Tensor::FromVector<int64_t>({0, 2, 2, 4}, {1, 4}); }

std::vector<Parameter> ByHand(nn::Module& module) {
  std::vector<Parameter> parameters;
  module.VisitParameters([&](nn::Parameter& p) { parameters.push_back({p.name, p.tensor}); });
  return parameters;
}

std::string WhyRefused(std::vector<Parameter> parameters) {
  try {
    const Sgd optimizer({{.parameters = std::move(parameters)}}, {.lr = 0.1});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ModuleParametersTest, ATiedWeightIsOneParameterThatMovesByAllItsGradient) {
  TiedNet net(nn::Scope::Root({.seed = 3}));
  const std::vector<Parameter> parameters = ParametersOf(net);
  ASSERT_EQ(parameters.size(), 3u);  // the table, and the layer's weight and bias
  EXPECT_EQ(parameters[0].tied.size(), 1u);

  // The gradient of the table is the sum of its uses'; a small step along it makes the loss fall by
  // its square.
  Backward(net.Loss(Ids()));
  const Tensor both = Add(Grad(parameters[0].tensor), Grad(parameters[0].tied[0]));
  const Tensor before = CastCopy(parameters[0].tensor.Detach(), DType::kFloat64);
  constexpr double kRate = 1e-3;
  Sgd optimizer({{.parameters = parameters}}, {.lr = kRate});
  optimizer.Step();
  const std::vector<double> moved = parameters[0].tensor.Detach().ToVector<double>();
  const std::vector<double> was = before.ToVector<double>();
  const std::vector<double> gradient = both.ToVector<double>();
  for (size_t i = 0; i < moved.size(); ++i) {
    EXPECT_NEAR(moved[i], was[i] - kRate * gradient[i], 1e-7) << i;
  }
}

TEST(ModuleParametersTest, TwoParametersOfOneMemoryAreRefused) {
  TiedNet net(nn::Scope::Root({.seed = 3}));
  const std::string why = WhyRefused(ByHand(net));
  EXPECT_NE(why.find("have the same memory"), std::string::npos) << why;
  EXPECT_NE(why.find("wte.weight"), std::string::npos) << why;
  EXPECT_EQ(WhyRefused(ParametersOf(net)), "");

  // Views of one storage: side by side they are fine, overlapping not.
  const Tensor all = Zeros({10});
  const auto piece = [&](int64_t begin, int64_t size) {
    return RequireGrad(all.AsStrided({size}, {1}, begin));
  };
  EXPECT_EQ(WhyRefused({{"a", piece(0, 4)}, {"b", piece(4, 6)}}), "");
  EXPECT_EQ(WhyRefused({{"b", piece(4, 6)}, {"a", piece(0, 4)}}), "");
  for (const auto& [begin, size] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 10}, {3, 1}, {0, 5}, {3, 4}, {2, 1}}) {
    EXPECT_NE(WhyRefused({{"a", piece(2, 4)}, {"b", piece(begin, size)}}), "") << begin;
    EXPECT_NE(WhyRefused({{"b", piece(begin, size)}, {"a", piece(2, 4)}}), "") << begin;
  }
}

TEST(ModuleParametersTest, FrozenParametersAreLeftOut) {
  TiedNet net(nn::Scope::Root({.seed = 3}));
  nn::Parameter& table = net.wte.weight();
  table.tensor = table.tensor.Detach();
  for (const Parameter& p : ParametersOf(net)) EXPECT_EQ(p.name.find("wte"), std::string::npos);
}

}  // namespace
}  // namespace tessera::optim
