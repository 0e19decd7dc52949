// SPDX-License-Identifier: Apache-2.0
#include "nn/mlp.h"

#include "core/execution_context.h"
#include "nn/weight.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/grouped_linear.h"
#include "ops/swiglu/swiglu.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

bool IsFused(const MlpConfig& config) {
  return !config.gate_name.empty() && config.gate_name == config.up_name;
}

// Of `parts` projections in one.
LinearConfig UpConfig(const MlpConfig& config, int64_t parts) {
  return {.in_features = config.hidden_size,
          .out_features = parts * config.inner_size,
          .bias = config.bias,
          .layout = config.layout,
          .weight_init = config.weight_init,
          .blocks = std::vector<FeatureBlock>(static_cast<size_t>(parts),
                                              {.features = config.inner_size})};
}

Share InnerShare(const MlpConfig& config, const Group& group) {
  return group == nullptr ? Share{0, config.inner_size}
                          : EvenShare(config.inner_size, group->size(), group->rank());
}

}  // namespace

Mlp::Mlp(const MlpConfig& config, const Scope& scope)
    : FeedForward(scope),
      activation_(config.activation),
      inner_size_(config.inner_size),
      inner_(InnerShare(config, build().tensor_parallel)),
      gated_(!config.gate_name.empty()),
      has_biases_(config.bias),
      layout_(config.layout),
      gate_(!gated_ || IsFused(config) ? nullptr
                                       : std::make_unique<ColumnParallelLinear>(
                                             UpConfig(config, 1), Child(config.gate_name))),
      up_(UpConfig(config, IsFused(config) ? 2 : 1), Child(config.up_name)),
      down_({.in_features = config.inner_size,
             .out_features = config.hidden_size,
             .bias = config.bias,
             .layout = config.layout,
             .weight_init = config.output_init},
            Child(config.down_name)),
      inner_dropout_(config.inner_dropout, Child("inner_dropout")),
      dropout_(config.dropout, Child("dropout")) {
  TESSERA_CHECK(activation_ != nullptr, "mlp", "no activation given");
}

Tensor Mlp::Forward(const Tensor& h, const ForwardContext& context) const {
  return Call(h, [&] {
    const bool drops_inner = context.training && inner_dropout_.p() > 0;
    const bool dense = IsDense(up_.weight()) && IsDense(down_.weight()) && !SumsInTrees(build());
    if (!gated_ && activation_ == GeluTanh && !drops_inner && dense) {
      return dropout_.Forward(down_.ForwardGelu(up_.ForwardGelu(h, context)), context);
    }
    const Tensor inner = Inner(up_.Gather(h, context), context);
    return dropout_.Forward(down_.Forward(inner, context), context);
  });
}

Tensor Mlp::ForwardPartial(const Tensor& h, const ForwardContext& context) const {
  return Call(h, [&] { return down_.ForwardPartial(Inner(h, context), context); });
}

bool Mlp::can_be_grouped(const ForwardContext& context) const {
  const bool dense = IsDense(up_.weight()) && IsDense(down_.weight()) &&
                     (gate_ == nullptr || IsDense(gate_->weight()));
  const bool drops = context.training && inner_dropout_.p() > 0;
  return dense && !drops && !has_hooks() && !has_biases_ && !SumsInTrees(build());
}

Tensor Mlp::ForwardGrouped(const std::vector<Rows>& layers, const Tensor& rows) {
  const Mlp& like = *layers.at(0).layer;
  std::vector<int64_t> counts;
  for (const Rows& of : layers) counts.push_back(of.count);
  const auto apply = [&](const Tensor& x, auto weight_of) {
    std::vector<Tensor> weights;
    for (const Rows& of : layers) {
      const ExecutionModeScope<&ExecutionContext::token_source> source(of.source);
      weights.push_back(LeafOf(weight_of(*of.layer)));
    }
    return GroupedLinear(x, counts, weights, like.layout_);
  };
  const auto up_of = [](const Mlp& mlp) -> const Parameter& { return mlp.up_.weight(); };
  const auto gate_of = [](const Mlp& mlp) -> const Parameter& { return mlp.gate_->weight(); };
  const auto down_of = [](const Mlp& mlp) -> const Parameter& { return mlp.down_.weight(); };
  // In the order of Inner.
  const Tensor gate = like.gate_ == nullptr ? Tensor() : apply(rows, gate_of);
  return apply(like.Activated(gate, apply(rows, up_of)), down_of);
}

// This rank's features, of what the group has gathered.
Tensor Mlp::Inner(const Tensor& whole, const ForwardContext& context) const {
  // The gate first: gradients are summed in this order.
  const Tensor gate = gate_ == nullptr ? Tensor() : gate_->ForwardGathered(whole, context);
  const Tensor inner = Activated(gate, up_.ForwardGathered(whole, context));
  return inner_dropout_.ForwardFeatures(inner, inner_.begin, inner_size_, context);
}

// `gate` is undefined where there is none, or `up` has both.
Tensor Mlp::Activated(Tensor gate, Tensor up) const {
  if (!gated_) return activation_(up);
  if (gate_ == nullptr) {
    const std::vector<Tensor> both = Split(up, {inner_.count, inner_.count}, -1);
    gate = both[0];
    up = both[1];
  }
  // Forms of weights may give other dtypes.
  const bool fused = activation_ == Silu && gate.dtype() == up.dtype();
  return fused ? SwiGlu(gate, up) : Mul(activation_(gate), up);
}

}  // namespace tessera::nn
