// SPDX-License-Identifier: Apache-2.0
// What becomes of the gradients of sharded parameters.
#include <algorithm>
#include <utility>

#include "autograd/autograd.h"
#include "base/error.h"
#include "dist/store/host_memory.h"
#include "dist/store/sharded_parameters.h"

namespace tessera::dist {

// Lanes in the order in which their last gradients come.
void ShardedParameters::MakeLanes() {
  struct Made {
    LaneLayout layout;
    size_t bucket;
    size_t use;
    size_t last_arrival;
  };
  std::vector<Made> made;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const FlatBucket& bucket = buckets_[b];
    if (!bucket.trains) continue;
    for (size_t use = 0; use <= bucket.slots.front().tied.size(); ++use) {
      Made& lane = made.emplace_back(
          Made{.layout = {.leaves = {},
                          .dtype = bucket.grad_dtype,
                          .device = bucket.device,
                          .group = bucket.ranks,
                          .model = bucket.model,
                          .elements = bucket.elements,
                          .accumulates = !options_.shards_gradients() ||
                                         (bucket.ranks->size() == 1 && !offloaded_[b]),
                          .whole = bucket.owner >= 0},
               .bucket = b,
               .use = use,
               .last_arrival = 0});
      for (const FlatSlot& slot : bucket.slots) {
        const Tensor& leaf = use == 0 ? slot.leaf : slot.tied[use - 1];
        lane.layout.leaves.push_back({slot.name, leaf, slot.offset, 0});
        lane.last_arrival = std::max(lane.last_arrival, slot.arrivals.at(use));
      }
    }
  }
  std::stable_sort(made.begin(), made.end(),
                   [](const Made& a, const Made& b) { return a.last_arrival > b.last_arrival; });
  lanes_of_.resize(buckets_.size());
  std::vector<LaneLayout> layouts;
  for (size_t l = 0; l < made.size(); ++l) {
    std::vector<size_t>& uses = lanes_of_[made[l].bucket];
    uses.resize(std::max(uses.size(), made[l].use + 1));
    uses[made[l].use] = l;
    kept_.push_back({made[l].bucket, Tensor()});
    layouts.push_back(std::move(made[l].layout));
  }
  // Where parameters are gathered in between, missing gradients must not change the order of
  // collectives.
  const bool in_order = !(options_.shards_parameters() && options_.find_unused_parameters);
  lanes_ = std::make_unique<GradientLanes>(
      std::move(layouts),
      GradientLanes::Options{.models = static_cast<int>(contents_.chunks.size()),
                             .deterministic = options_.deterministic,
                             .overlap = options_.overlap && in_order,
                             .arrived = [this](size_t l, const Tensor& part) { Keep(l, part); },
                             .communication_dtype = options_.communication_dtype});
}

// Adds this rank's part of the sums to what it has, and lets go of what is not needed any more.
void ShardedParameters::Keep(size_t l, const Tensor& sum) {
  Lane& lane = kept_[l];
  const FlatBucket& bucket = buckets_[lane.bucket];
  const bool others = bucket.owner >= 0 && bucket.owner != bucket.ranks->rank();
  const Tensor part = others ? Empty({0}, sum.dtype(), sum.device()) : sum;
  const bool first = lanes_->keeps_whole(l) || lanes_->in_first_micro_batch(l);
  // The lane's memory is there in any case.
  const bool stays = lanes_->keeps_whole(l) && !options_.shards_gradients();
  if (offloaded_[lane.bucket]) {
    const Tensor host = CopyTo(part, HostMemoryOf(bucket.device));
    if (first) {
      lane.share = host;
    } else {
      AddInto(lane.share, host);
    }
  } else if (bucket.ranks->size() == 1) {
    lane.share = part;
  } else if (!first) {
    AddInto(lane.share, part);
  } else if (stays && bucket.owner < 0) {
    lane.share = FlatView(lanes_->whole(l), bucket.ranks->rank() * bucket.share, bucket.share);
    CopyInto(lane.share, part);
  } else {
    const bool exact = part.storage()->bytes() == static_cast<size_t>(part.nbytes());
    lane.share = exact ? part : CastCopy(part, part.dtype());
  }
  if (!stays) lanes_->ReleaseWhole(l);
  if (options_.find_unused_parameters || bucket.gradient_group != nullptr) return;
  if (!HasLanded(lane.bucket)) return;
  Join(lane.bucket);
  Landed(lane.bucket);
}

// Whether the last micro-batch's gradients of all uses are there.
bool ShardedParameters::HasLanded(size_t bucket) const {
  return std::all_of(lanes_of_[bucket].begin(), lanes_of_[bucket].end(),
                     [&](size_t l) { return lanes_->in_last_micro_batch(l) && lanes_->landed(l); });
}

void ShardedParameters::FinishGradients() {
  const NoGrad no_grad;
  if (units_ != nullptr) units_->ReleaseAll();
  lanes_->Finish();
  lanes_->ShareUse(options_.find_unused_parameters);
  // Ranks of a tensor-parallel group add what the data-parallel ranks have added, all of it.
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (buckets_[b].trains && buckets_[b].slots.front().parameter.adds_in_tree) Join(b);
  }
  SumPartial();
  if (contents_.stage != nullptr) JoinOverStages();
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const FlatBucket& bucket = buckets_[b];
    if (!bucket.trains) continue;
    if (!options_.find_unused_parameters && bucket.gradient_group == nullptr) continue;
    Join(b);
    Landed(b);
  }
}

// Sums the gradients of which this rank has seen a part (sequence parallelism).
void ShardedParameters::SumPartial() {
  for (const Lane& lane : kept_) {
    const auto& partial = buckets_[lane.bucket].gradient_group;
    if (partial == nullptr || partial->size() == 1) continue;
    if (!lane.share.defined() || lane.share.numel() == 0) continue;
    partial->AllReduce(lane.share, ReduceOp::kSum)->Wait();
  }
}

size_t ShardedParameters::LaneOf(const nn::Parameter& use) const {
  for (size_t l = 0; l < lanes_->size(); ++l) {
    const std::vector<LaneLayout::Leaf>& leaves = lanes_->layout(l).leaves;
    if (leaves.size() == 1 && leaves.front().leaf.record() == use.tensor.record()) return l;
  }
  throw Error("store", Concat("'", use.name, "' is not one of the shared weights"));
}

// Shared weights are alone in their buckets: the joined sum is the parameter's, and no use of this
// rank is left to be added.
void ShardedParameters::JoinOverStages() {
  contents_.stage->JoinTiedGradients(
      [this](const nn::Parameter& use) {
        if (!RequiresGrad(use.tensor)) return Tensor();
        const size_t l = LaneOf(use);
        return lanes_->used(l, 0) ? CopyTo(kept_[l].share, use.tensor.device()) : Tensor();
      },
      [this](const nn::Parameter& weight, const Tensor& sum) {
        const size_t own = LaneOf(weight);
        for (const size_t l : lanes_of_[kept_[own].bucket]) {
          lanes_->set_used(l, 0, l == own);
          DropShare(l);
        }
        const bool host = offloaded_[kept_[own].bucket];
        kept_[own].share = CopyTo(sum, host ? HostMemoryOf(sum.device()) : sum.device());
      });
}

// The gradients of a parameter's uses become one, the parameter's own first.
void ShardedParameters::Join(size_t bucket) {
  const std::vector<size_t>& uses = lanes_of_[bucket];
  if (uses.size() == 1) return;
  std::vector<Tensor> shares;
  for (const size_t l : uses) shares.push_back(lanes_->used(l, 0) ? kept_[l].share : Tensor());
  const Tensor sum =
      optim::SumOfUses(std::move(shares), buckets_[bucket].slots.front().parameter.adds_in_tree);
  for (const size_t l : uses) {
    if (l != uses.front() && lanes_->used(l, 0)) DropShare(l);
  }
  if (!sum.defined()) return;
  kept_[uses.front()].share = sum;
  lanes_->set_used(uses.front(), 0, true);
}

void ShardedParameters::DropShare(size_t l) {
  kept_[l].share = Tensor();
  if (options_.shards_gradients()) lanes_->ReleaseWhole(l);
}

// --- Reading them --------------------------------------------------------------------------------

// This rank's piece of a gradient; undefined where there is none.
Tensor ShardedParameters::GradientOf(const Place& place) const {
  const FlatBucket& bucket = buckets_[place.bucket];
  const size_t l = lanes_of_[place.bucket].front();
  if (!lanes_->used(l, place.slot)) return Tensor();
  return bucket.PieceOfShare(kept_[l].share, bucket.slots[place.slot], bucket.ranks->rank());
}

std::vector<Tensor> ShardedParameters::PiecesOf(size_t bucket) const {
  std::vector<Tensor> pieces;
  for (size_t s = 0; s < buckets_[bucket].slots.size(); ++s) {
    pieces.push_back(GradientOf({bucket, s}));
  }
  return pieces;
}

std::vector<Tensor> ShardedParameters::Gradients() {
  std::vector<Tensor> gradients;
  for (const Place& place : places_) gradients.push_back(GradientOf(place));
  return gradients;
}

std::vector<std::vector<std::string>> ShardedParameters::BucketNames() const {
  std::vector<std::vector<std::string>> buckets;
  for (const FlatBucket& bucket : buckets_) {
    std::vector<std::string>& names = buckets.emplace_back();
    for (const FlatSlot& slot : bucket.slots) names.push_back(slot.name);
  }
  return buckets;
}

}  // namespace tessera::dist
