// SPDX-License-Identifier: Apache-2.0
// How parameters are cut and updated; sharded_gradients.cc has what becomes of their gradients.
#include "dist/store/sharded_parameters.h"

#include <algorithm>
#include <map>
#include <utility>

#include "autograd/autograd.h"
#include "base/error.h"
#include "dist/store/host_memory.h"

namespace tessera::dist {

ShardedParameters::ShardedParameters(const StoreContents& contents,
                                     const OptimizerFactory& make_optimizer,
                                     const ZeroOptions& options,
                                     std::function<void(const optim::StepInputs&)> step)
    : contents_(contents), options_(options) {
  for (const FlatSlot& slot : contents.slots) {
    for (const Tensor& tied : slot.tied) {
      TESSERA_CHECK(IsLeaf(tied) && GradDType(tied) == GradDType(slot.leaf), "store",
                    "a leaf tied to '", slot.name, "' has gradients of another dtype");
    }
  }
  std::vector<Unit> units = MakeBuckets();
  FindPlaces();
  offloaded_ = ChooseOffloaded();
  std::vector<Tensor> shares = options.shards_parameters() ? Shard(std::move(units)) : Flatten();
  optimizer_ = std::make_unique<ShardedOptimizer>(contents, buckets_, std::move(shares), offloaded_,
                                                  make_optimizer, std::move(step));
  updated_.assign(buckets_.size(), false);
  MakeLanes();
}

// --- Cutting -------------------------------------------------------------------------------------

// A bucket is a unit where parameters are cut; otherwise it has as many as the cap allows, and
// those that do not train are in none.
std::vector<Unit> ShardedParameters::MakeBuckets() {
  std::vector<FlatSlot> slots = contents_.slots;
  double cap = options_.bucket_cap_mb * 1048576;
  std::vector<Unit> units;
  if (options_.shards_parameters()) {
    cap = 0;
    UnitPlan plan = PlanUnits(*contents_.chunks.front().front(), options_);
    units = std::move(plan.units);
    std::map<std::string, int64_t> by_name;
    for (const auto& [parameter, unit] : plan.unit_of) by_name[parameter->name] = unit;
    for (FlatSlot& slot : slots) {
      slot.unit = by_name.at(slot.name);
      slot.persistent = slot.numel() < options_.persistence_threshold;
    }
  } else {
    slots.erase(std::remove_if(slots.begin(), slots.end(),
                               [](const FlatSlot& slot) { return !slot.trains; }),
                slots.end());
  }
  ChooseOwners(&slots);
  std::reverse(slots.begin(), slots.end());  // about the order in which gradients come
  buckets_ = MakeFlatBuckets(std::move(slots), cap);
  return units;
}

void ShardedParameters::FindPlaces() {
  std::map<size_t, Place> by_order;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    for (size_t s = 0; s < buckets_[b].slots.size(); ++s) {
      if (buckets_[b].trains) by_order[buckets_[b].slots[s].order] = {b, s};
    }
  }
  for (const auto& [order, place] : by_order) places_.push_back(place);
}

// Parameters move into flat buckets, and shares are views of them.
std::vector<Tensor> ShardedParameters::Flatten() {
  std::vector<Tensor> shares;
  for (const FlatBucket& bucket : buckets_) {
    const Tensor flat = Zeros({bucket.elements}, bucket.dtype, bucket.device);
    for (const FlatSlot& slot : bucket.slots) {
      const Tensor whole = slot.leaf.Detach();
      TESSERA_CHECK(whole.is_contiguous() && whole.offset() == 0, "store", "parameter '", slot.name,
                    "' is a view: ", whole);
      CopyInto(SlotView(flat, slot), whole);
      whole.storage()->Borrow(flat.storage(),
                              static_cast<size_t>(slot.offset) * DTypeSize(bucket.dtype));
    }
    flats_.push_back(flat);
    const ElementRange mine = bucket.Share();
    shares.push_back(FlatView(flat, mine.begin, mine.end - mine.begin));
  }
  return shares;
}

std::vector<Tensor> ShardedParameters::Shard(std::vector<Unit> units) {
  std::vector<Tensor> shares;
  std::vector<std::vector<std::shared_ptr<ParameterShard>>> of_units(units.size());
  for (const FlatBucket& bucket : buckets_) {
    const Device place = options_.offload_parameters ? HostMemoryOf(bucket.device) : bucket.device;
    shards_.push_back(ParameterShard::Cut(bucket, place));
    shares.push_back(shards_.back()->share());
    if (bucket.persistent) {
      persistent_.push_back(GatheredScope({bucket.slots.front().leaf}));
    } else {
      of_units[static_cast<size_t>(bucket.unit)].push_back(shards_.back());
    }
  }
  units_ = std::make_unique<GatheredUnits>(std::move(units), std::move(of_units), options_);
  return shares;
}

// Whole buckets, the last ones first in the models' order, until the fraction is reached as nearly
// as may be.
std::vector<bool> ShardedParameters::ChooseOffloaded() const {
  std::vector<bool> chosen(buckets_.size(), false);
  if (!options_.offload_optimizer) return chosen;
  double all = 0;
  for (const FlatBucket& bucket : buckets_) {
    all += bucket.trains ? static_cast<double>(bucket.elements) : 0;
  }
  const double wanted = all * options_.offload_fraction;
  double taken = 0;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const auto size = static_cast<double>(buckets_[b].elements);
    if (!buckets_[b].trains || taken + size / 2 > wanted) continue;
    chosen[b] = true;
    taken += size;
  }
  return chosen;
}

// --- A step --------------------------------------------------------------------------------------

void ShardedParameters::BeginStep(int64_t micro_batches,
                                  const std::optional<optim::StepInputs>& inputs) {
  // Of a stage, and where gradients may be missing, buckets are whole at the end only. Updates of
  // whole parameters may communicate, which no thread does beside the backward pass.
  const bool early = options_.offload_optimizer && contents_.stage == nullptr &&
                     !options_.find_unused_parameters && contents_.needs_whole == nullptr;
  early_ = early ? inputs : std::nullopt;
  std::fill(updated_.begin(), updated_.end(), false);
  for (Lane& lane : kept_) lane.share = Tensor();
  lanes_->BeginStep(micro_batches);
}

void ShardedParameters::BeginMicroBatch(int64_t m, int model) {
  if (units_ != nullptr) units_->ReleaseAll();
  lanes_->BeginMicroBatch(m, model);
}

// A bucket's parameters are not needed any more in this step: its gradients are complete.
void ShardedParameters::Landed(size_t bucket) {
  if (!early_ || !offloaded_[bucket]) return;
  if (buckets_[bucket].device.is_meta()) {  // nothing to overlap, and bytes are counted in order
    updated_[bucket] = true;
    optimizer_->Update(bucket, PiecesOf(bucket), *early_);
    return;
  }
  if (worker_ == nullptr) worker_ = std::make_unique<HostWorker>();
  updated_[bucket] = true;
  worker_->Do([this, bucket, gradients = PiecesOf(bucket)] {
    optimizer_->Update(bucket, gradients, *early_);
  });
}

void ShardedParameters::Step(const optim::StepInputs& inputs) {
  const NoGrad no_grad;
  if (worker_ != nullptr) worker_->Wait();
  if (units_ != nullptr) units_->ReleaseAll();
  std::vector<CommHandlePtr> travelling;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const FlatBucket& bucket = buckets_[b];
    if (!bucket.trains) continue;
    if (!updated_[b]) optimizer_->Update(b, PiecesOf(b), early_.value_or(inputs));
    optimizer_->WriteBack(b);
    if (options_.shards_parameters()) {
      shards_[b]->ShareChanged();
      continue;
    }
    for (const FlatSlot& slot : bucket.slots) slot.leaf.storage()->BumpVersion();
    Communicator& group = *bucket.ranks;
    if (group.size() == 1) continue;
    if (bucket.owner >= 0) {
      travelling.push_back(group.Broadcast(flats_[b], bucket.owner));
    } else {
      const Tensor share = FlatView(flats_[b], group.rank() * bucket.share, bucket.share);
      travelling.push_back(group.AllGather(flats_[b], share));
    }
  }
  optimizer_->Advance(early_.value_or(inputs));
  for (const CommHandlePtr& handle : travelling) handle->Wait();
  for (const auto& shard : shards_) shard->Await();
  for (size_t l = 0; l < kept_.size(); ++l) DropShare(l);
  early_.reset();
}

void ShardedParameters::AbandonStep() {
  if (worker_ != nullptr) worker_->Wait();
  if (units_ != nullptr) units_->ReleaseAll();
  lanes_->Abandon();
  for (Lane& lane : kept_) lane.share = Tensor();
  early_.reset();
}

// --- Reading and writing -------------------------------------------------------------------------

void ShardedParameters::AppendTensors(std::vector<CheckpointTensor>* entries) {
  if (!options_.shards_parameters()) {
    for (const FlatSlot& slot : contents_.slots) {
      entries->push_back({"model." + slot.name, slot.leaf.Detach(), slot.placement});
    }
  }
  for (size_t b = 0; b < shards_.size(); ++b) {
    for (const FlatSlot& slot : buckets_[b].slots) {
      const int rank = buckets_[b].ranks->rank();
      const ElementRange range = buckets_[b].PieceOf(slot, rank);
      const Tensor piece = buckets_[b].PieceOfShare(shards_[b]->share(), slot, rank);
      AppendPieceEntries("model." + slot.name, piece, slot.placement, range, entries);
    }
  }
  const Tensor step = optimizer_->step();
  entries->push_back({"optimizer.step", step, Placement::Whole(step.shape())});
  optimizer_->VisitPieces([&](const FlatSlot& slot, const ElementRange& range,
                              const std::string& state, const Tensor& t,
                              const Placement& placement) {
    const std::string name = "optimizer." + optim::StateName(slot.name, state);
    if (slot.whole) {
      entries->push_back({name, t, placement});
    } else {
      AppendPieceEntries(name, t, slot.placement, range, entries);
    }
  });
}

void ShardedParameters::Loaded(bool with_states) {
  if (units_ != nullptr) units_->ReleaseAll();
  for (const auto& shard : shards_) shard->ShareChanged();
  for (const auto& shard : shards_) shard->Await();
  if (with_states) {
    optimizer_->RefreshCopies();
  } else {
    optimizer_->RefreshMasterWeights();
  }
}

}  // namespace tessera::dist
