// SPDX-License-Identifier: Apache-2.0
// Sequential and ModuleList.
#include <gtest/gtest.h>

#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/module_list.h"
#include "nn/sequential.h"
#include "ops/elementwise/elementwise.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

LinearConfig Layer(int64_t in, int64_t out) {
  return {.in_features = in, .out_features = out, .weight_init = Init::Normal(0.5)};
}

struct Net : Module {
  explicit Net(const Scope& scope) : Module(scope) {
    first = &body.Add<ReplicatedLinear>(Layer(3, 4));
    body.Add(Relu);
    body.Add<Dropout>(0.5);
    Sequential& inner = body.Add<Sequential>();
    second = &inner.Add<ReplicatedLinear>(Layer(4, 2));
    inner.Add([](const Tensor& x) { return Tanh(x); });
  }
  Sequential body{Child("body")};
  ReplicatedLinear* first = nullptr;
  ReplicatedLinear* second = nullptr;
};

std::vector<std::string> Names(Module& module) {
  std::vector<std::string> names;
  for (Parameter* p : module.Parameters()) names.push_back(p->name);
  return names;
}

TEST(ContainersTest, SequentialRunsItsLayersInOrder) {
  Net net(Scope::Root({.seed = 1}));
  EXPECT_EQ(Names(net), (std::vector<std::string>{"body.0.weight", "body.0.bias", "body.3.0.weight",
                                                  "body.3.0.bias"}));
  EXPECT_EQ(net.body.size(), 4u);
  const Tensor x = CastCopy(RandomTensor({5, 3}, 1), DType::kFloat32);
  const Tensor y = net.body.Forward(x);
  EXPECT_EQ(y.ToVector<float>(),
            Tanh(net.second->Forward(Relu(net.first->Forward(x)))).ToVector<float>());
  // The context reaches the layers.
  const Tensor dropped = net.body.Forward(x, {.training = true, .step = 1});
  EXPECT_NE(dropped.ToVector<float>(), y.ToVector<float>());
  int calls = 0;
  net.body.AddHooks({.pre_forward = [&](const Module&) { ++calls; },
                     .post_forward = nullptr,
                     .pre_backward = nullptr,
                     .post_backward = nullptr});
  net.body.Forward(x);
  EXPECT_EQ(calls, 1);
  const Sequential empty(Scope::Root({}));
  EXPECT_TRUE(empty.Forward(x).is_same(x));
}

TEST(ContainersTest, SequentialsGradient) {
  Net net(Scope::Root({.dtype = DType::kFloat64, .seed = 1}));
  Tensors inputs = {RandomTensor({5, 3}, 1)};
  for (Parameter* p : net.Parameters()) inputs.push_back(p->tensor.Detach());
  CheckOp({.name = "Sequential",
           .op =
               [](const Tensors& in) {
                 Net copy(Scope::Root({.dtype = in[0].dtype(), .device = in[0].device()}));
                 const std::vector<Parameter*> parameters = copy.Parameters();
                 for (size_t i = 0; i < parameters.size(); ++i) {
                   parameters[i]->tensor = Contiguous(in[i + 1]);
                 }
                 const Sequential& body = copy.body;
                 return Tensors{body.Forward(in[0])};
               },
           .reference = nullptr,
           .inputs = inputs,
           .sum_length = 4});
}

TEST(ContainersTest, ModuleListOwnsItsLayers) {
  struct Tower : Module {
    explicit Tower(const Scope& scope) : Module(scope) {
      for (int64_t i = 0; i < 3; ++i) layers.Add(Layer(2 + i, 3 + i));
    }
    ModuleList<ReplicatedLinear> layers{Child("layers")};
  } tower(Scope::Root({.seed = 1}));
  EXPECT_EQ(tower.layers.size(), 3u);
  EXPECT_EQ(Names(tower).front(), "layers.0.weight");
  EXPECT_EQ(Names(tower).back(), "layers.2.bias");
  Tensor x = Full({1, 2}, 1.0);
  for (const ReplicatedLinear& layer : tower.layers) x = layer.Forward(x);
  EXPECT_EQ(x.shape(), (Shape{1, 5}));
  EXPECT_EQ(tower.layers[1].path(), "layers.1");
  EXPECT_THROW(tower.layers[3], std::out_of_range);
}

TEST(ContainersTest, UniformParametersAreAFunctionOfSeedAndName) {
  struct One : Module {
    One(const Scope& scope, const Shape& shape) : Module(scope) {
      AddParameter("w", Placement::Whole(shape), Init::Uniform(0.25));
    }
  };
  One a(Scope::Root({.seed = 1}), {40, 50});
  One b(Scope::Root({.seed = 1}), {40, 50});
  One c(Scope::Root({.seed = 2}), {40, 50});
  const auto values = [](Module& m) { return m.FindParameter("w")->tensor.ToVector<double>(); };
  EXPECT_EQ(values(a), values(b));
  EXPECT_NE(values(a), values(c));
  double squares = 0;
  for (const double v : values(a)) {
    EXPECT_LT(std::abs(v), 0.2500001);
    squares += v * v;
  }
  EXPECT_NEAR(squares / 2000, 0.25 * 0.25 / 3, 1e-3);
}

}  // namespace
}  // namespace tessera::nn
