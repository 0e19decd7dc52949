// SPDX-License-Identifier: Apache-2.0
#include "nn/expert_mlp.h"

#include <cmath>
#include <utility>

#include "autograd/autograd.h"
#include "base/error.h"
#include "nn/token_groups.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/index/index.h"
#include "ops/random/random.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

const ExpertMlpConfig& Checked(const ExpertMlpConfig& config) {
  TESSERA_CHECK(!config.expert.bias, "expert_mlp", "experts have no biases");
  TESSERA_CHECK(config.expert.dropout == 0 && config.expert.inner_dropout == 0, "expert_mlp",
                "experts have no dropout");
  TESSERA_CHECK(config.capacity_factor >= 0 && config.input_jitter >= 0, "expert_mlp",
                "capacity_factor and input_jitter are not negative");
  return config;
}

}  // namespace

class ExpertMlp::Experts : public Module {
 public:
  Experts(const ExpertMlpConfig& config, const Scope& scope) : Module(scope) {
    for (int64_t e = 0; e < config.router.num_experts; ++e) {
      list_.push_back(std::make_unique<Mlp>(config.expert, Child(Concat(e))));
    }
  }

  // This rank's terms for the rows of each expert, one behind the other.
  Tensor Forward(const Tensor& rows_RC, const std::vector<int64_t>& counts,
                 const ForwardContext& context) const {
    return Call(rows_RC, [&] {
      const std::vector<Tensor> parts = Split(rows_RC, counts, 0);
      std::vector<Tensor> results;
      for (size_t e = 0; e < list_.size(); ++e) {
        // Where gradients are wanted, an expert without tokens has zeros; hooks may communicate,
        // and other ranks have other tokens.
        if (counts[e] == 0 && !GradEnabled() && !list_[e]->has_hooks()) continue;
        results.push_back(list_[e]->ForwardPartial(parts[e], context));
      }
      return Cat(results, 0);
    });
  }

 private:
  std::vector<std::unique_ptr<Mlp>> list_;
};

ExpertMlp::ExpertMlp(const ExpertMlpConfig& config, const Scope& scope)
    : FeedForward(scope),
      config_(Checked(config)),
      router_(config.router, Child(config.router_name)),
      experts_(std::make_unique<Experts>(config_, Child(config.experts_name))),
      dropout_(0, Child("dropout")) {
  if (config.shared.inner_size == 0) return;
  shared_ = std::make_unique<Mlp>(config.shared, Child(config.shared_name));
  if (config.shared_gate_name.empty()) return;
  shared_gate_ =
      std::make_unique<ReplicatedLinear>(LinearConfig{.in_features = config.router.hidden_size,
                                                      .out_features = 1,
                                                      .bias = false,
                                                      .weight_init = config.router.weight_init,
                                                      .on_sequence_share = true},
                                         Child(config.shared_gate_name));
}

ExpertMlp::~ExpertMlp() = default;

Tensor ExpertMlp::Forward(const Tensor& given, const ForwardContext& context) const {
  return Call(given, [&] {
    const Group& group = build().tensor_parallel;
    const bool shares = build().sequence_parallel;
    const Tensor own = Jittered(given, context);
    // The router sees the same on every rank; what goes through the experts' shares has a part of
    // its gradient on each.
    const Tensor seen = shares ? GatherFromGroup(own, 1, context.sequence_length, group) : own;
    const Tensor whole =
        shares ? AllGatherToGroup(own, 1, context.sequence_length, group) : CopyToGroup(own, group);
    const Shape flat = {whole.numel() / whole.size(-1), whole.size(-1)};
    const Routing routing = router_.Route(Reshape(seen, flat), context);
    if (context.routings != nullptr) context.routings->push_back(routing);
    const Tensor partial = Reshape(Mix(Reshape(whole, flat), routing, context), whole.shape());
    const Tensor y = dropout_.Forward(
        shares ? ReduceScatterToGroup(partial, 1, group) : ReduceFromGroup(partial, group),
        context);
    return shared_ == nullptr ? y : Add(y, Shared(own, context));
  });
}

Tensor ExpertMlp::Jittered(const Tensor& h, const ForwardContext& context) const {
  if (!context.training || config_.input_jitter == 0) return h;
  const RandomKey key = NoiseKey(context.seed, path(), context.step, context.micro_batch);
  TESSERA_CHECK(!build().sequence_parallel, "expert_mlp", path(),
                ": input_jitter does not go with sequence parallelism");
  const Tensor uniform = Rand(h.shape(), key, {.device = h.device()});
  return Mul(h,
             Cast(Affine(uniform, 2 * config_.input_jitter, 1 - config_.input_jitter), h.dtype()));
}

Tensor ExpertMlp::Mix(const Tensor& h, const Routing& routing,
                      const ForwardContext& context) const {
  const RouterConfig& router = config_.router;
  const int64_t tokens = h.size(0);
  const int64_t each = router.experts_per_token;
  int64_t capacity = 0;
  if (config_.capacity_factor > 0) {
    capacity = static_cast<int64_t>(
        std::ceil(config_.capacity_factor * static_cast<double>(tokens * each) /
                  static_cast<double>(router.num_experts)));
  }
  const TokenGroups groups = GroupTokens(routing.chosen, router.num_experts, capacity);
  Tensor weights = CopyToGroup(routing.weights, build().tensor_parallel);
  if (groups.kept.defined()) weights = Mul(weights, Cast(groups.kept, weights.dtype()));
  const Tensor results = experts_->Forward(IndexSelect(h, 0, groups.token), groups.counts, context);
  const Tensor each_NkC =
      Reshape(IndexSelect(results, 0, groups.row), {tokens, each, results.size(1)});
  const Tensor sum = Sum(Mul(Cast(each_NkC, weights.dtype()), Unsqueeze(weights, 2)), {1});
  return Cast(sum, h.dtype());
}

Tensor ExpertMlp::Shared(const Tensor& h, const ForwardContext& context) const {
  const Tensor y = shared_->Forward(h, context);
  if (shared_gate_ == nullptr) return y;
  return Mul(y, Sigmoid(shared_gate_->Forward(h, context)));
}

}  // namespace tessera::nn
