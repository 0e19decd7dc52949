// SPDX-License-Identifier: Apache-2.0
#include "nn/router.h"

#include <limits>

#include "autograd/autocast.h"
#include "autograd/autograd.h"
#include "autograd/recompute.h"
#include "base/error.h"
#include "nn/running_statistics.h"
#include "nn/weight.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/index/index.h"
#include "ops/reduction/reduction.h"
#include "ops/reduction/sum.h"
#include "ops/softmax/softmax.h"
#include "ops/sort/sort.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

const RouterConfig& Checked(const RouterConfig& c) {
  TESSERA_CHECK(
      c.num_experts > 0 && c.experts_per_token > 0 && c.experts_per_token <= c.num_experts,
      "router", c.experts_per_token, " of ", c.num_experts, " experts per token");
  TESSERA_CHECK(c.groups > 0 && c.num_experts % c.groups == 0 && c.chosen_groups > 0 &&
                    c.chosen_groups <= c.groups &&
                    c.chosen_groups * (c.num_experts / c.groups) >= c.experts_per_token,
                "router", c.chosen_groups, " of ", c.groups, " groups of ", c.num_experts,
                " experts, for ", c.experts_per_token, " per token");
  TESSERA_CHECK(c.groups == 1 || c.num_experts / c.groups >= 2, "router",
                "a group has one expert: its two best are added up");
  return c;
}

// Added to a sum of scores that may be zero: softmax's are not.
double Epsilon(RouterConfig::Scores scores) {
  return scores == RouterConfig::Scores::kSigmoid ? 1e-20 : 0.0;
}

}  // namespace

Router::Router(const RouterConfig& config, const Scope& scope)
    : Module(scope),
      config_(Checked(config)),
      weight_(AddParameter("weight", Placement::Whole({config.num_experts, config.hidden_size}),
                           config.weight_init)) {
  if (config.bias_name.empty()) return;
  bias_ = &AddParameter(config.bias_name, Placement::Whole({config.num_experts}), Init::Zeros());
  bias_->can_train = false;
  DropGrad(bias_->tensor);
}

std::optional<LinearLayout> Router::term_layout() const {
  return config_.in_float32 ? std::nullopt : std::optional(LinearLayout::kOutIn);
}

Routing Router::Route(const Tensor& h, const ForwardContext& context) const {
  return Call(h, [&] {
    Routing routing;
    const DType wide = h.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    if (config_.in_float32 && IsDense(weight_)) {
      const AutocastScope full(DType::kFloat32);
      routing.logits =
          Linear(Cast(h, wide), Cast(weight_.tensor, wide), Tensor(), LinearLayout::kOutIn);
    } else {
      routing.logits = Cast(Multiply(weight_, LinearLayout::kOutIn, h, Tensor(), context), wide);
    }
    const Tensor scores = config_.scores == RouterConfig::Scores::kSoftmax
                              ? Softmax(routing.logits, -1)
                              : Sigmoid(routing.logits);
    {
      const NoGrad no_grad;
      routing.chosen = Choose(scores.Detach());
    }
    Tensor weights = Gather(scores, 1, routing.chosen);
    if (config_.normalised) {
      weights = Div(weights, Add(Sum(weights, {1}, /*keep_dims=*/true), Epsilon(config_.scores)));
    }
    if (config_.scale != 1) weights = Mul(weights, config_.scale);
    routing.weights = config_.in_float32 ? weights : Cast(weights, h.dtype());
    if (context.training) CountLoad(routing.chosen);
    return routing;
  });
}

// int64 [N, k] of scores [N, E].
Tensor Router::Choose(const Tensor& scores) const {
  Tensor by = scores;
  if (bias_ != nullptr) by = Add(by, Cast(bias_->tensor.Detach(), by.dtype()));
  if (config_.chosen_groups < config_.groups) {
    const int64_t tokens = by.size(0);
    const int64_t each = config_.num_experts / config_.groups;
    const Tensor grouped = Reshape(by, {tokens, config_.groups, each});
    const Tensor best = Sum(TopK(grouped, 2, -1).values, {2});
    const Tensor groups = TopK(best, config_.chosen_groups, -1).indices;
    const Tensor open = Unsqueeze(Sum(OneHot(groups, config_.groups), {1}), 2);  // 1 or 0
    const Tensor all = BroadcastTo(open, grouped.shape());
    by = Reshape(Where(Compare(all, 0.0, Comparison::kNotEqual), grouped,
                       -std::numeric_limits<double>::infinity()),
                 {tokens, config_.num_experts});
  }
  return TopK(by, config_.experts_per_token, -1).indices;
}

void Router::CountLoad(const Tensor& chosen) const {
  const double rate = config_.bias_update_rate;
  if (bias_ == nullptr || rate == 0 || InRecomputation()) return;
  RunningStatistics* const statistics = RunningStatistics::Current();
  TESSERA_CHECK(!IsHalf(bias_->tensor.dtype()), "router", "a bias in ",
                DTypeName(bias_->tensor.dtype()),
                " does not hold steps of bias_update_rate: train in float32, with autocast");
  TESSERA_CHECK(statistics != nullptr, "router",
                "the loads of experts have no place to go (nn::RunningStatistics::Scope); "
                "pipelines and ZeRO 3 have none: train by data parallelism with ZeRO 0 to 2, or "
                "with a bias_update_rate of 0");
  const NoGrad no_grad;
  // In float64, so that loads which are equal are so on any number of ranks.
  const Tensor load = Sum(OneHot(Reshape(chosen, {-1}), config_.num_experts, DType::kFloat64), {0});
  statistics->Add(*bias_, load, [rate](const Tensor& bias, const Tensor& mean_load) {
    constexpr double kRounding = 1e-6;
    const Tensor missing = Sub(Mean(mean_load), mean_load);
    const Tensor more =
        Where(Compare(missing, kRounding, Comparison::kGreater), rate, 0.0, bias.dtype());
    const Tensor less =
        Where(Compare(missing, -kRounding, Comparison::kLess), rate, 0.0, bias.dtype());
    return Add(bias, Sub(more, less));
  });
}

}  // namespace tessera::nn
