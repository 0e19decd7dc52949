// SPDX-License-Identifier: Apache-2.0
// BatchNorm's running statistics on several layouts, and by hand.
#include "examples/vision/resnet.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include <tessera/core/thread_communicator.h>
#include <tessera/models/family.h>
#include <tessera/nn/running_statistics.h>
#include <tessera/optim/optimizer_kind.h>
#include <tessera/train/engine/engine.h>

namespace tessera::examples {
namespace {

const nlohmann::json kTiny = {{"model_type", "torchvision-resnet"},
                              {"width", 4},
                              {"blocks_per_stage", 1},
                              {"num_channels", 1},
                              {"num_labels", 2}};

void Require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(Message(status));
}

// Two pictures, bright above or below.
models::Bundle PicturesOf(int64_t micro_batch) {
  std::vector<float> pixels(2 * 16 * 16);
  for (size_t i = 0; i < pixels.size(); ++i) {
    const bool below = i % 256 >= 128;
    pixels[i] = (below == (i >= 256) ? 1.0f : 0.0f) +
                0.01f * static_cast<float>((i * 7 + static_cast<size_t>(micro_batch) * 13) % 31);
  }
  return {{keys::kPixelValues, Tensor::FromVector(pixels, {2, 1, 16, 16})},
          {keys::kLabels, Tensor::FromVector<int64_t>({0, 1}, {2})}};
}

struct Layout {
  int ranks = 1;
  int zero = 0;
  bool recompute = false;
};

using State = std::map<std::string, std::vector<double>>;

// All parameters after three steps of four micro-batches; those of every rank.
std::vector<State> Train(const Layout& layout) {
  std::vector<State> states(static_cast<size_t>(layout.ranks));
  RunRanks(layout.ranks, [&](const std::shared_ptr<Communicator>& world) {
    const dist::Mesh mesh(world, {});
    const auto model = models::BuildModel(kTiny, {.seed = 3});
    Require(model.status());
    (*model)->set_checkpoint_activations(layout.recompute);
    const auto rule = (*optim::FindOptimizerKind("sgd"))->Configure({}, "resnet_test");
    Require(rule.status());
    train::Engine engine(**model, mesh,
                         {.rule = *rule, .store = {.stage = layout.zero, .deterministic = true}});
    engine.Start();
    const int64_t mine = 4 / layout.ranks;
    for (uint64_t step = 1; step <= 3; ++step) {
      std::vector<models::Bundle> batches;
      for (int64_t m = 0; m < mine; ++m) batches.push_back(PicturesOf(world->rank() * mine + m));
      models::RunOptions options;
      options.context.training = true;
      options.loss_reduction = LossReduction::kSum;
      engine.Step({.batches = batches,
                   .targets = 8,
                   .learning_rate = 0.01,
                   .number = step,
                   .options = [&](int64_t) { return options; }});
    }
    State& state = states[static_cast<size_t>(world->rank())];
    for (const auto& [name, t] : (*model)->StateDict()) state[name] = t.ToVector<double>();
    const auto before = (*model)->StateDict().at("bn1.running_mean").ToVector<double>();
    (*model)->Run(PicturesOf(0), {});
    EXPECT_EQ((*model)->StateDict().at("bn1.running_mean").ToVector<double>(), before);
  });
  return states;
}

void ExpectNear(const State& a, const State& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) {
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], b.at(name)[i], tolerance) << name << " " << i;
    }
  }
}

TEST(ResNetTest, RunningStatisticsAreThoseOfAStepOnEveryLayout) {
  const State one = Train({})[0];
  EXPECT_NE(one.at("bn1.running_mean"), std::vector<double>(4, 0.0));
  EXPECT_NE(one.at("layer4.0.bn2.running_var"), std::vector<double>(32, 1.0));
  // A second run of each block in the backward pass adds nothing.
  EXPECT_EQ(Train({.recompute = true})[0], one);
  for (const int zero : {0, 1, 2}) {
    const std::vector<State> ranks = Train({.ranks = 2, .zero = zero});
    EXPECT_EQ(ranks[0], ranks[1]) << zero;
    ExpectNear(ranks[0], one, 1e-5);
  }
}

// Cut parameters have no place for running statistics, over one rank neither.
TEST(ResNetTest, StageThreeIsRefused) { EXPECT_THROW(Train({.zero = 3}), Error); }

// By hand: 0.9 times the first value and 0.1 times the mean over micro-batches, the variance
// unbiased.
TEST(ResNetTest, RunningStatisticsByHand) {
  struct Net : nn::Module {
    explicit Net(const nn::Scope& scope) : Module(scope) {}
    nn::BatchNorm norm{{.channels = 1}, Child("norm")};
  } net(nn::Scope::Root({}));
  const auto pass = [&](const std::vector<float>& x) {
    net.norm.Forward(Tensor::FromVector<float>(x, {static_cast<int64_t>(x.size()), 1}),
                     {.training = true});
  };
  EXPECT_THROW(pass({1, 2}), Error);  // without a scope
  net.Freeze();
  net.Freeze("", /*frozen=*/false);
  EXPECT_EQ(net.ParameterCount(/*trainable_only=*/true), 2);
  nn::RunningStatistics statistics;
  {
    const nn::RunningStatistics::Scope scope(&statistics);
    pass({1, 3});
    pass({2, 6});
    EXPECT_THROW(pass({1}), Error);
  }
  EXPECT_EQ(net.StateDict().at("norm.running_mean").Item(), 0);
  statistics.Apply();
  EXPECT_NEAR(net.StateDict().at("norm.running_mean").Item(), 0.1 * 3, 1e-6);
  EXPECT_NEAR(net.StateDict().at("norm.running_var").Item(), 0.9 + 0.1 * (2 + 8) / 2, 1e-6);
  {
    const nn::RunningStatistics::Scope scope(&statistics);
    pass({4, 8});
  }
  statistics.Apply(nullptr, Full({}, 1.0));  // of a step that is left out
  EXPECT_TRUE(statistics.empty());
  statistics.Apply();  // nothing is left
  EXPECT_NEAR(net.StateDict().at("norm.running_mean").Item(), 0.1 * 3, 1e-6);
}

}  // namespace
}  // namespace tessera::examples
