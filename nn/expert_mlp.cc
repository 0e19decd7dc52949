// SPDX-License-Identifier: Apache-2.0
#include "nn/expert_mlp.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "autograd/autograd.h"
#include "base/error.h"
#include "core/execution_context.h"
#include "nn/sequence_share.h"
#include "nn/token_groups.h"
#include "nn/weight.h"
#include "ops/cast/cast.h"
#include "ops/collective/collective.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/routed_rows/routed_rows.h"
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
  Experts(const ExpertMlpConfig& config, const Scope& scope)
      : Module(scope), ranks_(build().expert_parallel) {
    const int64_t experts = config.router.num_experts;
    const int ranks = ranks_ == nullptr ? 1 : ranks_->size();
    TESSERA_CHECK(experts >= ranks, "expert_mlp", path(), " has ", experts, " experts, and ep is ",
                  ranks);
    for (int r = 0; r < ranks; ++r) {
      BuildContext part = build();
      if (ranks > 1) {
        part.expert_group = ranks_;
        part.elsewhere = r != ranks_->rank();
      }
      const auto shared = std::make_shared<const BuildContext>(std::move(part));
      shares_.push_back(EvenShare(experts, ranks, r));
      for (int64_t i = 0; i < shares_.back().count; ++i) {
        Scope place = Child(Concat(std::ssize(list_)));
        place.build = shared;
        list_.push_back(std::make_unique<Mlp>(config.expert, place));
      }
    }
  }

  // This rank's terms for the rows of each expert, one behind the other.
  Tensor Forward(const Tensor& rows_RC, const std::vector<int64_t>& counts,
                 const ForwardContext& context) const {
    return Call(rows_RC, [&] {
      return shares_.size() == 1 ? Work({{counts, context}}, rows_RC)
                                 : WorkOverRanks(rows_RC, counts, context);
    });
  }

 private:
  // What one rank asks of this one's experts: so many rows of each, in its own context.
  struct Request {
    std::vector<int64_t> counts;
    ForwardContext context;
    int64_t rows() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  };

  Share Mine() const { return shares_[shares_.size() == 1 ? 0 : ranks_->rank()]; }

  // Where gradients are wanted, an expert without tokens has zeros; hooks may communicate, and
  // other ranks have other tokens.
  Tensor WorkOf(size_t expert, const Tensor& rows, const ForwardContext& context) const {
    const Mlp& mlp = *list_[static_cast<size_t>(Mine().begin) + expert];
    const bool idle = rows.size(0) == 0 && !GradEnabled() && !mlp.has_hooks();
    return idle ? rows : mlp.ForwardPartial(rows, context);
  }

  bool CanBeGrouped(const std::vector<Request>& requests) const {
    const Share mine = Mine();
    for (int64_t e = mine.begin; e < mine.begin + mine.count; ++e) {
      const Mlp& layer = *list_[static_cast<size_t>(e)];
      if (!layer.can_be_grouped(requests[0].context)) return false;
    }
    return mine.count > 0;
  }

  // `rows` are those of each request, by expert; so are the results. An expert works on all its
  // rows at once, unless each request's have a gradient of their own.
  Tensor Work(const std::vector<Request>& requests, const Tensor& rows) const {
    const auto experts = static_cast<size_t>(Mine().count);
    std::vector<int64_t> counts;
    for (const Request& request : requests) {
      counts.insert(counts.end(), request.counts.begin(), request.counts.end());
    }
    const bool apart = requests.size() == 1 || build().deterministic;
    if (apart && CanBeGrouped(requests)) {
      std::vector<Mlp::Rows> layers;
      for (size_t i = 0; i < counts.size(); ++i) {
        const size_t expert = static_cast<size_t>(Mine().begin) + i % experts;
        layers.push_back({list_[expert].get(), counts[i], static_cast<int>(i / experts)});
      }
      return Mlp::ForwardGrouped(layers, rows);
    }
    std::vector<Tensor> parts = Split(rows, counts, 0);
    for (size_t e = 0; e < experts; ++e) {
      if (apart) {
        for (size_t r = 0; r < requests.size(); ++r) {
          const ExecutionModeScope<&ExecutionContext::token_source> source(static_cast<int>(r));
          Tensor& part = parts[r * experts + e];
          part = WorkOf(e, part, requests[r].context);
        }
        continue;
      }
      std::vector<Tensor> all;
      std::vector<int64_t> lengths;
      for (size_t r = 0; r < requests.size(); ++r) {
        all.push_back(parts[r * experts + e]);
        lengths.push_back(requests[r].counts[e]);
      }
      const std::vector<Tensor> results =
          Split(WorkOf(e, Cat(all, 0), requests[static_cast<size_t>(ranks_->rank())].context),
                lengths, 0);
      for (size_t r = 0; r < requests.size(); ++r) parts[r * experts + e] = results[r];
    }
    return Cat(parts, 0);
  }

  Tensor WorkOverRanks(const Tensor& rows, const std::vector<int64_t>& counts,
                       const ForwardContext& context) const {
    const std::vector<Request> requests = Exchange(counts, context);
    std::vector<int64_t> sent, received;
    for (size_t r = 0; r < shares_.size(); ++r) {
      const auto begin = counts.begin() + shares_[r].begin;
      sent.push_back(std::accumulate(begin, begin + shares_[r].count, int64_t{0}));
      received.push_back(requests[r].rows());
    }
    const Tensor mine = ExchangeRows(rows, sent, received, ranks_);
    return ExchangeRows(Work(requests, mine), received, sent, ranks_);
  }

  // Tells every rank what this one asks of it, and hears what they ask.
  std::vector<Request> Exchange(const std::vector<int64_t>& counts,
                                const ForwardContext& context) const {
    const auto width =
        static_cast<size_t>(shares_.front().count) + 1;  // the first one is the largest
    std::vector<int64_t> told(width * shares_.size(), 0);
    for (size_t r = 0; r < shares_.size(); ++r) {
      told[r * width] = static_cast<int64_t>(context.micro_batch);
      const auto begin = counts.begin() + shares_[r].begin;
      std::copy(begin, begin + shares_[r].count, told.begin() + r * width + 1);
    }
    const Tensor heard = Empty({std::ssize(told)}, DType::kInt64);
    ranks_->AllToAll(heard, Tensor::FromVector(told, heard.shape()))->Wait();
    std::vector<Request> requests;
    for (size_t r = 0; r < shares_.size(); ++r) {
      const int64_t* const words = heard.data<int64_t>() + r * width;
      Request& request =
          requests.emplace_back(Request{{words + 1, words + 1 + Mine().count}, context});
      request.context.micro_batch = static_cast<uint64_t>(words[0]);  // keys of its noise
    }
    return requests;
  }

  const Group ranks_;
  std::vector<Share> shares_;  // of the experts, by rank
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
    // its gradient on each, where they do not sum it.
    const Tensor whole = GatherForColumns(own, context, build());
    const Tensor seen = SumsInTrees(build()) ? whole
                        : shares ? GatherFromGroup(own, 1, context.sequence_length, group)
                                 : own;
    const Shape flat = {whole.numel() / whole.size(-1), whole.size(-1)};
    const Routing routing = router_.Route(Reshape(seen, flat), context);
    if (context.routings != nullptr) context.routings->push_back(routing);
    const Tensor partial = Reshape(Mix(Reshape(whole, flat), routing, context), whole.shape());
    const Tensor y = dropout_.Forward(JoinRows(partial, build()), context);
    return shared_ == nullptr ? y : Add(y, Shared(own, context));
  });
}

Tensor ExpertMlp::Jittered(const Tensor& h, const ForwardContext& context) const {
  if (!context.training || config_.input_jitter == 0) return h;
  const RandomKey key = NoiseKey(context.seed, path(), context.step, context.micro_batch);
  const SequenceShare share = HiddenTokens(build(), context);
  Shape whole = h.shape();
  if (!share.is_whole()) whole[1] = share.length;
  Tensor uniform = Rand(whole, key, {.device = h.device()});
  if (!share.is_whole()) uniform = TakeRuns(uniform, 1, share.runs);
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
  const Tensor weights = SumsInTrees(build())
                             ? routing.weights
                             : CopyToGroup(routing.weights, build().tensor_parallel);
  const Tensor rows = DispatchRows(h, groups.place, groups.rows());
  const Tensor results = experts_->Forward(rows, groups.counts, context);
  return Cast(CombineRows(results, weights, groups.place), h.dtype());
}

Tensor ExpertMlp::Shared(const Tensor& h, const ForwardContext& context) const {
  const Tensor y = shared_->Forward(h, context);
  if (shared_gate_ == nullptr) return y;
  return Mul(y, Sigmoid(shared_gate_->Forward(h, context)));
}

}  // namespace tessera::nn
