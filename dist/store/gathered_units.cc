// SPDX-License-Identifier: Apache-2.0
#include "dist/store/gathered_units.h"

#include <map>

#include "autograd/autograd.h"
#include "autograd/recompute.h"

namespace tessera::dist {

GatheredUnits::GatheredUnits(std::vector<Unit> units,
                             std::vector<std::vector<std::shared_ptr<ParameterShard>>> shards,
                             const ZeroOptions& options)
    : units_(std::move(units)), options_(options), states_(units_.size()) {
  std::vector<nn::Module*> modules;  // in order of appearance
  std::map<nn::Module*, std::vector<size_t>> used;
  for (size_t u = 0; u < units_.size(); ++u) {
    states_[u].shards = std::move(shards[u]);
    for (const auto& shard : states_[u].shards) {
      states_[u].elements += shard->elements();
    }
    if (states_[u].shards.empty()) continue;
    for (nn::Module* user : units_[u].users) {
      if (used[user].empty()) modules.push_back(user);
      used[user].push_back(u);
    }
  }
  for (nn::Module* module : modules) AddHooks(module, used[module]);
}

GatheredUnits::~GatheredUnits() {
  for (const auto& [module, id] : hooks_) module->RemoveHooks(id);
}

void GatheredUnits::AddHooks(nn::Module* module, const std::vector<size_t>& used) {
  std::vector<size_t> uses;
  for (const size_t unit : used) {
    uses.push_back(uses_.size());
    uses_.push_back({unit, module->looks_up()});
  }
  const auto each = [this, uses](void (GatheredUnits::*what)(size_t)) {
    return [this, uses, what](const nn::Module&) {
      for (const size_t use : uses) (this->*what)(use);
    };
  };
  hooks_.emplace_back(module,
                      module->AddHooks({.pre_forward = each(&GatheredUnits::BeforeForward),
                                        .post_forward = each(&GatheredUnits::AfterForward),
                                        .pre_backward = each(&GatheredUnits::BeforeBackward),
                                        .post_backward = each(&GatheredUnits::AfterBackward)}));
}

void GatheredUnits::Begin(size_t unit) {
  State& state = states_[unit];
  if (state.held) return;
  for (const auto& shard : state.shards) shard->Acquire();
  state.held = true;
  alive_ += state.elements;
  ++counts_.gathers;
}

void GatheredUnits::Gather(size_t unit) {
  State& state = states_[unit];
  Begin(unit);
  for (const auto& shard : state.shards) shard->Await();
  if (state.ahead) ++counts_.prefetched;
  state.ahead = false;
}

void GatheredUnits::Release(size_t unit) {
  State& state = states_[unit];
  if (!state.held) return;
  for (const auto& shard : state.shards) shard->Return();
  state.held = false;
  state.ahead = false;
  alive_ -= state.elements;
}

void GatheredUnits::ReleaseAll() {
  for (size_t unit = 0; unit < states_.size(); ++unit) Release(unit);
}

void GatheredUnits::Prefetch(const Use& use, int step) {
  int64_t under_way = 0;
  for (int64_t i = use.position + step; i >= 0 && i < std::ssize(order_); i += step) {
    const Use& next = uses_[order_[static_cast<size_t>(i)]];
    if (step < 0 && next.looks_up) continue;
    State& state = states_[next.unit];
    if (!state.held) {
      if (alive_ + state.elements > options_.max_live_elements) return;
      Begin(next.unit);
      state.ahead = true;
    }
    under_way += state.elements;
    if (options_.limit_all_gathers || under_way >= options_.prefetch_elements) return;
  }
}

void GatheredUnits::BeforeForward(size_t index) {
  Use& use = uses_[index];
  if (InRecomputation()) {
    Gather(use.unit);
    return;
  }
  if (use.position < 0) {
    use.position = std::ssize(order_);
    order_.push_back(index);
  }
  Gather(use.unit);
  if (options_.forward_prefetch) Prefetch(use, 1);
}

void GatheredUnits::AfterForward(size_t index) {
  if (InRecomputation()) return;  // the backward pass is about to need it
  if (GradEnabled() && !options_.reshard_after_forward) return;
  Release(uses_[index].unit);
}

void GatheredUnits::BeforeBackward(size_t index) {
  const Use& use = uses_[index];
  if (use.looks_up) return;
  Gather(use.unit);
  if (options_.backward_prefetch == BackwardPrefetch::kPre) Prefetch(use, -1);
}

void GatheredUnits::AfterBackward(size_t index) {
  Release(uses_[index].unit);
  if (options_.backward_prefetch == BackwardPrefetch::kPost) Prefetch(uses_[index], -1);
}

}  // namespace tessera::dist
