// SPDX-License-Identifier: Apache-2.0
// The router beside formulas in float64, its bias, and the order in which experts get tokens.
#include "nn/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "nn/layer_check.h"
#include "nn/running_statistics.h"
#include "nn/token_groups.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/sum.h"
#include "ops/testing/op_check.h"

namespace tessera::nn {
namespace {

constexpr int64_t kTokens = 23;
constexpr int64_t kWidth = 5;

struct RouterCase {
  const char* name;
  RouterConfig config;
};

RouterConfig Config(int64_t experts, int64_t each, RouterConfig more = {}) {
  more.hidden_size = kWidth;
  more.num_experts = experts;
  more.experts_per_token = each;
  more.weight_init = Init::Normal(1);
  return more;
}

std::vector<RouterCase> Cases() {
  using Scores = RouterConfig::Scores;
  return {
      {"mixtral", Config(4, 2)},
      {"qwen2_moe", Config(6, 3, {.normalised = false})},
      {"one", Config(3, 1)},
      {"all", Config(3, 3)},
      {"sigmoids", Config(6, 2, {.scores = Scores::kSigmoid, .scale = 2.5, .in_float32 = true})},
      {"bias", Config(6, 2, {.scores = Scores::kSigmoid, .bias_name = "bias"})},
      {"groups",
       Config(8, 3,
              {.scores = Scores::kSigmoid, .groups = 4, .chosen_groups = 2, .bias_name = "bias"})},
  };
}

// What a token's scores say, one number at a time.
struct Expected {
  std::vector<int64_t> chosen;
  std::vector<double> weights;
};
Expected Reference(const RouterConfig& c, const std::vector<double>& logits,
                   const std::vector<double>& bias) {
  const size_t experts = logits.size();
  std::vector<double> scores(experts);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  for (size_t e = 0; e < experts; ++e) {
    scores[e] = c.scores == RouterConfig::Scores::kSoftmax ? std::exp(logits[e]) / sum
                                                           : 1 / (1 + std::exp(-logits[e]));
  }
  std::vector<double> by = scores;
  for (size_t e = 0; e < experts; ++e) by[e] += bias.empty() ? 0 : bias[e];
  const auto best = [](const std::vector<double>& values, int64_t count) {
    std::vector<int64_t> order;
    for (size_t i = 0; i < values.size(); ++i) order.push_back(static_cast<int64_t>(i));
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
    });
    order.resize(static_cast<size_t>(count));
    return order;
  };
  const size_t each = experts / static_cast<size_t>(c.groups);
  std::vector<double> of_group;
  for (size_t g = 0; g < static_cast<size_t>(c.groups); ++g) {
    const auto begin = by.begin() + static_cast<std::ptrdiff_t>(g * each);
    std::vector<double> group(begin, begin + static_cast<std::ptrdiff_t>(each));
    std::sort(group.rbegin(), group.rend());
    of_group.push_back(group[0] + (group.size() > 1 ? group[1] : 0));
  }
  const std::vector<int64_t> open = best(of_group, c.chosen_groups);
  for (size_t e = 0; e < experts; ++e) {
    const auto group = static_cast<int64_t>(e / each);
    if (std::find(open.begin(), open.end(), group) == open.end()) by[e] = -1e9;
  }
  Expected expected;
  expected.chosen = best(by, c.experts_per_token);
  double total = 0;
  for (const int64_t e : expected.chosen) total += scores[static_cast<size_t>(e)];
  for (const int64_t e : expected.chosen) {
    expected.weights.push_back(scores[static_cast<size_t>(e)] / (c.normalised ? total : 1) *
                               c.scale);
  }
  return expected;
}

TEST(RouterTest, ChoosesAndWeighsAsTheFormulasSay) {
  for (const RouterCase& c : Cases()) {
    SCOPED_TRACE(c.name);
    Router router(c.config, RootScope(nullptr));
    const Tensor h = RandomTensor({kTokens, kWidth}, 7);
    std::vector<double> bias;
    if (Parameter* p = router.FindParameter("bias")) {
      EXPECT_FALSE(RequiresGrad(p->tensor));
      CopyInto(p->tensor, RandomTensor(p->tensor.shape(), 9, 0.8));
      bias = p->tensor.ToVector<double>();
    }
    const Routing routing = router.Route(h);
    const std::vector<double> w = router.FindParameter("weight")->tensor.ToVector<double>();
    const std::vector<double> x = h.ToVector<double>();
    const std::vector<double> weights = routing.weights.ToVector<double>();
    const std::vector<int64_t> chosen = routing.chosen.ToVector<int64_t>();
    const auto each = static_cast<size_t>(c.config.experts_per_token);
    for (size_t n = 0; n < kTokens; ++n) {
      std::vector<double> logits(static_cast<size_t>(c.config.num_experts), 0.0);
      for (size_t e = 0; e < logits.size(); ++e) {
        for (size_t i = 0; i < kWidth; ++i) logits[e] += w[e * kWidth + i] * x[n * kWidth + i];
      }
      const Expected expected = Reference(c.config, logits, bias);
      for (size_t j = 0; j < each; ++j) {
        EXPECT_EQ(chosen[n * each + j], expected.chosen[j]) << n;
        EXPECT_NEAR(weights[n * each + j], expected.weights[j], 1e-12) << n;
      }
    }
  }
}

TEST(RouterTest, EqualScoresGoToLowerNumbers) {
  Router router(Config(5, 2), RootScope(nullptr));
  const Routing routing = router.Route(Zeros({3, kWidth}, DType::kFloat64));
  EXPECT_EQ(routing.chosen.ToVector<int64_t>(), (std::vector<int64_t>{0, 1, 0, 1, 0, 1}));
}

// By sign(mean load - load), over all tokens of a step, and not in an evaluation.
TEST(RouterTest, TheBiasMovesTowardsExpertsWithLessLoad) {
  RouterConfig config = Config(4, 1, {.scores = RouterConfig::Scores::kSigmoid});
  config.bias_name = "bias";
  config.bias_update_rate = 0.125;
  Router router(config, RootScope(nullptr));
  const Tensor bias = router.FindParameter("bias")->tensor;
  std::vector<double> load(4, 0.0);
  RunningStatistics statistics;
  {
    const RunningStatistics::Scope scope(&statistics);
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const Tensor h = RandomTensor({kTokens, kWidth}, seed);
      for (const int64_t e : router.Route(h, {.training = true}).chosen.ToVector<int64_t>()) {
        load[static_cast<size_t>(e)] += 1;
      }
      router.Route(h);
    }
  }
  statistics.Apply();
  const double mean = 3 * kTokens / 4.0;
  for (size_t e = 0; e < 4; ++e) {
    const double expected = load[e] < mean ? 0.125 : load[e] > mean ? -0.125 : 0.0;
    EXPECT_EQ(bias.ToVector<double>()[e], expected) << e;
  }
  EXPECT_THROW(router.Route(RandomTensor({2, kWidth}, 1), {.training = true}), Error);
}

TEST(TokenGroupsTest, RowsAreSortedByExpertThenToken) {
  const Tensor chosen = Tensor::FromVector<int64_t>({2, 0, 0, 2, 2, 3, 0, 3}, {4, 2});
  const TokenGroups all = GroupTokens(chosen, 4);
  EXPECT_EQ(all.counts, (std::vector<int64_t>{3, 0, 3, 2}));
  EXPECT_EQ(all.place.ToVector<int64_t>(), (std::vector<int64_t>{3, 0, 1, 4, 5, 6, 2, 7}));
  const TokenGroups first = GroupTokens(chosen, 4, 2);
  EXPECT_EQ(first.counts, (std::vector<int64_t>{2, 0, 2, 2}));
  EXPECT_EQ(first.rows(), 6);
  EXPECT_EQ(first.place.ToVector<int64_t>(), (std::vector<int64_t>{2, 0, 1, 3, -1, 4, -1, 5}));
  EXPECT_THROW(GroupTokens(chosen, 3), Error);
}

}  // namespace
}  // namespace tessera::nn
