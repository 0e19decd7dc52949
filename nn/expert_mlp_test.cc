// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts beside Mlps that every token goes through, on 1 to 3 ranks, with a capacity,
// with experts that no token goes to.
#include "nn/expert_mlp.h"

#include <gtest/gtest.h>

#include <map>

#include "core/thread_communicator.h"
#include "nn/activation.h"
#include "nn/layer_check.h"
#include "nn/transformer_block.h"
#include "ops/elementwise/elementwise.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

constexpr int64_t kWidth = 6;

ExpertMlpConfig Config(bool shared, double capacity = 0) {
  ExpertMlpConfig config;
  config.router = {.hidden_size = kWidth,
                   .num_experts = 4,
                   .experts_per_token = 2,
                   .weight_init = Init::Normal(0.7)};
  config.expert = {.hidden_size = kWidth,
                   .inner_size = 5,
                   .activation = Silu,
                   .bias = false,
                   .weight_init = Init::Normal(0.5),
                   .output_init = Init::Normal(0.5),
                   .gate_name = "w1",
                   .up_name = "w3",
                   .down_name = "w2"};
  if (shared) {
    config.shared = config.expert;
    config.shared.inner_size = 7;
    config.shared_gate_name = "shared_gate";
  }
  config.capacity_factor = capacity;
  return config;
}

// Every token through every expert; weights of those that were not chosen, or beyond the capacity,
// are 0.
std::vector<double> Reference(const ExpertMlpConfig& config, ExpertMlp& layer, const Tensor& h) {
  const Tensor flat = Reshape(h, {-1, kWidth});
  Router router(config.router, Scope{"gate", nullptr, RootScope(nullptr).build});
  router.FindParameter("gate.weight")->tensor = layer.FindParameter("gate.weight")->tensor;
  const Routing routing = router.Route(flat);
  const std::vector<int64_t> chosen = routing.chosen.ToVector<int64_t>();
  const std::vector<double> weights = routing.weights.ToVector<double>();
  const int64_t tokens = flat.size(0);
  int64_t capacity = tokens * 2;
  if (config.capacity_factor > 0) {
    capacity = static_cast<int64_t>(
        std::ceil(config.capacity_factor * static_cast<double>(tokens * 2) / 4));
  }
  std::vector<double> y(static_cast<size_t>(flat.numel()), 0.0);
  for (int64_t e = 0; e < 4; ++e) {
    const std::string path = Concat("experts.", e);
    Mlp mlp(config.expert, Scope{path, nullptr, RootScope(nullptr).build});
    const std::vector<double> out = mlp.Forward(flat, {}).ToVector<double>();
    int64_t taken = 0;
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i] != e || taken == capacity) continue;
      ++taken;
      for (size_t c = 0; c < kWidth; ++c)
        y[i / 2 * kWidth + c] += weights[i] * out[i / 2 * kWidth + c];
    }
  }
  if (config.shared.inner_size == 0) return y;
  Mlp mlp(config.shared, Scope{"shared_experts", nullptr, RootScope(nullptr).build});
  ReplicatedLinear gate({.in_features = kWidth,
                         .out_features = 1,
                         .bias = false,
                         .weight_init = config.router.weight_init},
                        Scope{"shared_gate", nullptr, RootScope(nullptr).build});
  const std::vector<double> more =
      Mul(mlp.Forward(flat, {}), Sigmoid(gate.Forward(flat))).ToVector<double>();
  for (size_t i = 0; i < y.size(); ++i) y[i] += more[i];
  return y;
}

class ExpertMlpTest : public testing::TestWithParam<int> {};

TEST_P(ExpertMlpTest, IsTheWeightedSumOfMlps) {
  for (const bool shared : {false, true}) {
    for (const double capacity : {0.0, 0.75}) {
      SCOPED_TRACE(Concat(shared, " ", capacity));
      const ExpertMlpConfig config = Config(shared, capacity);
      const Tensor x = RandomTensor({3, 5, kWidth}, 5);
      std::vector<double> plain;
      {
        ExpertMlp layer(config, RootScope(nullptr));
        plain = Reference(config, layer, x);
      }
      RunRanks(GetParam(), [&](std::shared_ptr<Communicator> world) {
        ExpertMlp layer(config, RootScope(world));
        const std::vector<double> y = layer.Forward(x, {}).ToVector<double>();
        ASSERT_EQ(y.size(), plain.size());
        for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], plain[i], 1e-10);
      });
    }
  }
}

TEST_P(ExpertMlpTest, Gradients) {
  const Tensor x = RandomTensor({2, 5, kWidth}, 8);
  RunRanks(GetParam(), [&](std::shared_ptr<Communicator> world) {
    ExpertMlp layer(Config(true), RootScope(world));
    CheckGradients(world, layer, x, [&](const Tensor& in) { return layer.Forward(in, {}); });
  });
}

// Each rank has some of the experts and tokens of its own: it gives what it gives alone, and where
// gradients are wanted by source, the bits of those too.
TEST_P(ExpertMlpTest, ExpertsOnOtherRanks) {
  const int ranks = GetParam();
  const ExpertMlpConfig config = Config(true);
  struct Alone {
    std::vector<double> y, gx;
    std::map<std::string, std::vector<double>> gradients;
  };
  std::vector<Tensor> inputs;
  for (int r = 0; r < ranks; ++r) {
    inputs.push_back(RandomTensor({1, 1 + 3 * r, kWidth}, static_cast<uint64_t>(20 + r)));
  }
  for (const bool by_source : {false, true}) {
    std::vector<Alone> alone;
    for (const Tensor& input : inputs) {
      BuildContext build = *RootScope(nullptr).build;
      build.deterministic = by_source;
      ExpertMlp layer(config, Scope::Root(build));
      const Tensor x = RequireGrad(input.ContiguousCopy());
      const Tensor y = layer.Forward(x, {});
      Backward({y}, {ProjectionGrad(y)});
      Alone& mine = alone.emplace_back(Alone{y.ToVector<double>(), Grad(x).ToVector<double>(), {}});
      for (Parameter* p : layer.Parameters()) {
        mine.gradients[p->name] = Grad(p->tensor).ToVector<double>();
      }
    }
    RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
      BuildContext build = *RootScope(nullptr).build;
      build.expert_parallel = world;
      build.deterministic = by_source;
      ExpertMlp layer(config, Scope::Root(build));
      const auto r = static_cast<size_t>(world->rank());
      const Tensor x = RequireGrad(inputs[r].ContiguousCopy());
      const Tensor y = layer.Forward(x, {});
      EXPECT_EQ(y.ToVector<double>(), alone[r].y);
      Backward({y}, {ProjectionGrad(y)});
      EXPECT_EQ(Grad(x).ToVector<double>(), alone[r].gx);
      int64_t here = 0;
      for (Parameter* p : layer.Parameters()) {
        EXPECT_EQ(p->placement.global_shape(),
                  p->elsewhere ? p->placement.global_shape() : p->tensor.shape());
        if (p->expert_group == nullptr) {
          EXPECT_EQ(Grad(p->tensor).ToVector<double>(), alone[r].gradients[p->name]) << p->name;
          continue;
        }
        EXPECT_EQ(p->tensor.numel() == 0, p->elsewhere) << p->name;
        if (p->elsewhere) continue;
        ++here;
        std::vector<double> sum(static_cast<size_t>(p->tensor.numel()), 0.0);
        for (size_t s = 0; s < alone.size(); ++s) {
          const std::vector<double>& term = alone[s].gradients[p->name];
          for (size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
          if (!by_source) continue;
          const Tensor& leaf = s == 0 ? p->tensor : p->by_source.at(s - 1);
          EXPECT_EQ(Grad(leaf).ToVector<double>(), term) << p->name << " of rank " << s;
        }
        if (by_source) continue;
        EXPECT_TRUE(p->by_source.empty());
        const std::vector<double> all = Grad(p->tensor).ToVector<double>();
        for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(all[i], sum[i], 1e-12) << p->name;
      }
      EXPECT_EQ(here, world->size() == 1 ? 0 : 3 * EvenShare(4, ranks, world->rank()).count);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ExpertMlpTest, testing::Values(1, 2, 3));

TEST(ExpertMlpLayerTest, EveryRankHasAnExpert) {
  RunRanks(5, [](std::shared_ptr<Communicator> world) {
    BuildContext build = *RootScope(nullptr).build;
    build.expert_parallel = world;
    try {
      const ExpertMlp layer(Config(false), Scope::Root(build));
      ADD_FAILURE() << "four experts on five ranks";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("experts has 4 experts, and ep is 5"),
                std::string::npos)
          << error.what();
    }
  });
}

TEST(ExpertMlpLayerTest, AnExpertWithoutTokensHasGradientsOfZeros) {
  ExpertMlp layer(Config(false), RootScope(nullptr));
  // Every token goes to experts 0 and 1.
  const Tensor gate = layer.FindParameter("gate.weight")->tensor;
  CopyInto(gate, Full(gate.shape(), 0.0, DType::kFloat64));
  const Tensor y = layer.Forward(RandomTensor({1, 4, kWidth}, 3), {});
  Backward({y}, {ProjectionGrad(y)});
  for (Parameter* p : layer.Parameters()) {
    const Tensor grad = Grad(p->tensor);
    ASSERT_TRUE(grad.defined()) << p->name;
    const bool used = p->name.find("experts.2") == std::string::npos &&
                      p->name.find("experts.3") == std::string::npos;
    double sum = 0;
    for (const double v : grad.ToVector<double>()) sum += std::abs(v);
    EXPECT_EQ(sum > 0, used) << p->name;
  }
  // Experts without tokens are left out where no gradient is wanted.
  const NoGrad no_grad;
  EXPECT_EQ(layer.Forward(RandomTensor({1, 1, kWidth}, 3), {}).shape(), (Shape{1, 1, kWidth}));
}

TEST(ExpertMlpLayerTest, RoutingsAreLeftInTheContext) {
  TransformerBlockConfig config;
  config.attention = {.hidden_size = kWidth, .num_heads = 2};
  config.feed_forward = [](const Scope& scope) {
    return std::make_unique<ExpertMlp>(Config(false), scope);
  };
  TransformerBlock block(config, RootScope(nullptr));
  ASSERT_NE(block.FindParameter("mlp.experts.3.w1.weight"), nullptr);
  std::vector<Routing> routings;
  ForwardContext context;
  context.routings = &routings;
  block.Forward(RandomTensor({2, 3, kWidth}, 1), {}, context);
  ASSERT_EQ(routings.size(), 1U);
  EXPECT_EQ(routings[0].logits.shape(), (Shape{6, 4}));
  EXPECT_EQ(routings[0].chosen.shape(), (Shape{6, 2}));
}

}  // namespace
}  // namespace tessera::nn
