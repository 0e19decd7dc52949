#include "dist/zero/zero_engine.h"

#include <algorithm>
#include <set>
#include <utility>

#include "autograd/autograd.h"
#include "core/error.h"
#include "dist/ddp/gradient_reducer.h"
#include "dist/ddp/replicas.h"
#include "dist/zero/gathered_units.h"
#include "dist/zero/gradient_shards.h"
#include "dist/zero/host_worker.h"
#include "dist/zero/shard_norm.h"
#include "dist/zero/sharded_optimizer.h"

namespace tessera::dist {

namespace {

ZeroOptions WithUnused(ZeroOptions options, const SharedGradients& shared) {
  options.find_unused_parameters = options.find_unused_parameters || !shared.names.empty();
  return options;
}

}  // namespace

class ZeroEngine::Impl {
 public:
  Impl(std::vector<nn::Module*> models, std::vector<optim::ParameterGroup> groups,
       OptimizerFactory make_optimizer, std::shared_ptr<Communicator> group,
       const ZeroOptions& options, const SharedGradients& shared);

  void Start();
  void BeginStep(int64_t micro_batches, std::optional<optim::StepInputs> early);
  void BeginMicroBatch(int64_t m, int model);
  void Finish();
  optim::ClipResult Clip(const optim::ClipOptions& options);
  void Step(const optim::StepInputs& inputs);
  optim::Optimizer& optimizer() {
    return whole_optimizer_ != nullptr ? *whole_optimizer_ : *optimizer_;
  }
  std::vector<CheckpointTensor> CheckpointTensors();
  void Loaded(bool with_states);
  Tensor Whole(nn::Parameter& parameter);
  std::map<std::string, Tensor> FullStateDict(bool rank0_only);
  void ReleaseGathered(bool keep = true);
  int64_t num_buckets() const {
    return reducer_ != nullptr ? reducer_->num_buckets() : std::ssize(buckets_);
  }
  const GatheredUnits* units() const { return units_.get(); }

 private:
  void FindSlots();
  void CheckTiedLeaves();
  void MakeWhole();
  void MakeBuckets();
  std::vector<Tensor> Flatten();
  std::vector<Tensor> Shard();
  std::vector<bool> ChooseOffloaded() const;
  void OnLanded(size_t bucket);
  void GatherUpdated();
  void BumpVersions(const FlatBucket& bucket);
  void GatherPersistent();
  void AppendWeights(std::vector<CheckpointTensor>* entries);

  const std::vector<nn::Module*> models_;
  const std::vector<optim::ParameterGroup> groups_;
  const OptimizerFactory make_optimizer_;
  const std::shared_ptr<Communicator> group_;
  const ZeroOptions options_;
  const SharedGradients shared_;

  std::vector<FlatSlot> slots_;  // in the models' order, until they are in buckets
  std::map<std::string, Placement> placements_;
  std::vector<optim::Parameter> parameters_;  // of the groups, in the models' order
  std::vector<FlatBucket> buckets_;
  std::vector<bool> offloaded_;                          // by bucket
  std::vector<Tensor> flats_;                            // stages 1, 2: whole parameters
  std::vector<std::shared_ptr<ParameterShard>> shards_;  // stage 3
  std::map<const nn::Parameter*, int64_t> unit_of_;      // stage 3, of those that are not tied

  std::unique_ptr<GatheredUnits> units_;
  std::unique_ptr<ShardedOptimizer> optimizer_;
  std::unique_ptr<GradientShards> gradients_;
  std::unique_ptr<ShardNorm> norm_;
  std::optional<optim::StepInputs> early_;
  std::vector<bool> updated_;  // early, by bucket

  // Stage 0, and one process that accumulates in order.
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<optim::Optimizer> whole_optimizer_;
  // Ends before what it works on.
  std::unique_ptr<HostWorker> worker_;
};

// --- Making it -----------------------------------------------------------------------------------

ZeroEngine::Impl::Impl(std::vector<nn::Module*> models, std::vector<optim::ParameterGroup> groups,
                       OptimizerFactory make_optimizer, std::shared_ptr<Communicator> group,
                       const ZeroOptions& options, const SharedGradients& shared)
    : models_(std::move(models)),
      groups_(std::move(groups)),
      make_optimizer_(std::move(make_optimizer)),
      group_(std::move(group)),
      options_(WithUnused(options, shared)),
      shared_(shared) {
  const absl::Status valid = options.Validate();
  TESSERA_CHECK(valid.ok(), "zero", Message(valid));
  TESSERA_CHECK(!models_.empty() && (options.stage < 3 || models_.size() == 1), "zero",
                models_.size(), " models at stage ", options.stage);
  TESSERA_CHECK(!options.deterministic || GradientReducer::IsPowerOfTwo(group_->size()), "zero",
                "deterministic sums need a power of two of ranks, not ", group_->size());
  const NoGrad no_grad;
  FindSlots();
  CheckTiedLeaves();
  if (options.stage == 0) {
    MakeWhole();
    return;
  }
  MakeBuckets();
  offloaded_ = ChooseOffloaded();
  std::vector<Tensor> shares = options.stage == 3 ? Shard() : Flatten();
  optimizer_ = std::make_unique<ShardedOptimizer>(
      groups_, buckets_, std::move(shares), offloaded_, group_->rank(), make_optimizer_,
      [this](const optim::StepInputs& inputs) { Step(inputs); });
  gradients_ = std::make_unique<GradientShards>(buckets_, offloaded_, group_, options_,
                                                [this](size_t b) { OnLanded(b); });
  if (shared_.join != nullptr) {
    gradients_->set_join_shared(
        [this](const auto& get, const auto& set) { shared_.join(get, set); });
  }
  norm_ = std::make_unique<ShardNorm>(buckets_, group_, options_.deterministic);
  updated_.assign(buckets_.size(), false);
}

void ZeroEngine::Impl::FindSlots() {
  struct Entry {
    const optim::Parameter* parameter;
    size_t group;
  };
  std::map<const AutogradRecord*, Entry> trained;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const optim::Parameter& p : groups_[g].parameters) {
      TESSERA_CHECK(RequiresGrad(p.tensor), "zero", "'", p.name, "' does not train");
      trained[p.tensor.record().get()] = {&p, g};
    }
  }
  std::map<const AutogradRecord*, size_t> place;  // of every leaf of the models
  size_t count = 0;
  for (nn::Module* model : models_) {
    model->VisitParameters([&](nn::Parameter& p) {
      if (p.tensor.record() != nullptr) place[p.tensor.record().get()] = count;
      ++count;
    });
  }
  for (size_t m = 0; m < models_.size(); ++m) {
    models_[m]->VisitParameters([&](nn::Parameter& p) {
      if (p.tied_to != nullptr) return;
      placements_[p.name] = p.placement;
      FlatSlot slot;
      slot.name = p.name;
      slot.leaf = p.tensor;
      slot.placement = p.placement;
      slot.order = slots_.size();
      slot.model = static_cast<int>(m);
      slot.gradient_group = p.gradient_group;
      slot.shared =
          std::find(shared_.names.begin(), shared_.names.end(), p.name) != shared_.names.end();
      const auto found = trained.find(p.tensor.record().get());
      if (p.tensor.record() != nullptr && found != trained.end()) {
        const optim::Parameter& parameter = *found->second.parameter;
        slot.trains = true;
        slot.group = found->second.group;
        slot.tied = parameter.tied;
        slot.arrivals.push_back(place.at(p.tensor.record().get()));
        for (const Tensor& tied : slot.tied) {
          const auto known = place.find(tied.record().get());
          slot.arrivals.push_back(known == place.end() ? 0 : known->second);
        }
        parameters_.push_back(parameter);
        trained.erase(found);
      }
      slots_.push_back(std::move(slot));
    });
  }
  TESSERA_CHECK(trained.empty(), "zero", "'", trained.begin()->second.parameter->name,
                "' is no parameter of the models");
}

void ZeroEngine::Impl::CheckTiedLeaves() {
  for (const FlatSlot& slot : slots_) {
    for (const Tensor& tied : slot.tied) {
      TESSERA_CHECK(IsLeaf(tied) && GradDType(tied) == GradDType(slot.leaf), "zero",
                    "a leaf tied to '", slot.name, "' has gradients of another dtype");
    }
  }
}

void ZeroEngine::Impl::MakeWhole() {
  whole_optimizer_ = make_optimizer_(groups_);
  if (group_->size() == 1 && !options_.deterministic) return;
  std::vector<ReducedLeaf> leaves;
  for (const optim::Parameter& p : parameters_) {
    leaves.push_back({p.name, p.tensor});
    for (const Tensor& tied : p.tied) leaves.push_back({p.name + " (tied)", tied});
  }
  reducer_ = std::make_unique<GradientReducer>(
      std::move(leaves), group_,
      ReducerOptions{.bucket_cap_mb = options_.bucket_cap_mb,
                     .deterministic = options_.deterministic,
                     .find_unused_parameters = options_.find_unused_parameters,
                     .overlap = options_.overlap});
}

void ZeroEngine::Impl::MakeBuckets() {
  std::vector<FlatSlot> slots = std::move(slots_);
  slots_.clear();
  double cap = options_.bucket_cap_mb * 1048576;
  std::vector<Unit> units;
  if (options_.stage == 3) {
    cap = 0;
    UnitPlan plan = PlanUnits(*models_.front(), options_);
    units = std::move(plan.units);
    unit_of_ = std::move(plan.unit_of);
    std::map<std::string, int64_t> by_name;
    for (const auto& [parameter, unit] : unit_of_) by_name[parameter->name] = unit;
    for (FlatSlot& slot : slots) {
      slot.unit = by_name.at(slot.name);
      slot.persistent = slot.numel() < options_.persistence_threshold;
    }
  } else {
    slots.erase(std::remove_if(slots.begin(), slots.end(),
                               [](const FlatSlot& slot) { return !slot.trains; }),
                slots.end());
  }
  std::reverse(slots.begin(), slots.end());  // about the order in which gradients come
  buckets_ = MakeFlatBuckets(std::move(slots), group_->size(), cap);
  if (options_.stage < 3) return;
  const Device place = options_.offload_parameters ? Device::Host() : Device();
  std::vector<std::vector<std::shared_ptr<ParameterShard>>> of_units(units.size());
  for (const FlatBucket& bucket : buckets_) {
    shards_.push_back(
        ParameterShard::Cut(bucket, group_, options_.offload_parameters ? place : bucket.device));
    if (!bucket.persistent) of_units[static_cast<size_t>(bucket.unit)].push_back(shards_.back());
  }
  units_ = std::make_unique<GatheredUnits>(std::move(units), std::move(of_units), options_);
  GatherPersistent();
}

// Stages 1 and 2: parameters move into flat buckets, and shares are views of them.
std::vector<Tensor> ZeroEngine::Impl::Flatten() {
  std::vector<Tensor> shares;
  for (const FlatBucket& bucket : buckets_) {
    const Tensor flat = Zeros({bucket.elements}, bucket.dtype, bucket.device);
    for (const FlatSlot& slot : bucket.slots) {
      const Tensor whole = slot.leaf.Detach();
      TESSERA_CHECK(whole.is_contiguous() && whole.offset() == 0, "zero", "parameter '", slot.name,
                    "' is a view: ", whole);
      CopyInto(SlotView(flat, slot), whole);
      whole.storage()->Borrow(flat.storage(),
                              static_cast<size_t>(slot.offset) * DTypeSize(bucket.dtype));
    }
    flats_.push_back(flat);
    shares.push_back(FlatView(flat, group_->rank() * bucket.share, bucket.share));
  }
  return shares;
}

std::vector<Tensor> ZeroEngine::Impl::Shard() {
  std::vector<Tensor> shares;
  for (const auto& shard : shards_) shares.push_back(shard->share());
  return shares;
}

// Whole buckets, the last ones first in the models' order, until the fraction is reached as nearly
// as may be.
std::vector<bool> ZeroEngine::Impl::ChooseOffloaded() const {
  std::vector<bool> chosen(buckets_.size(), false);
  if (!options_.offload_optimizer) return chosen;
  double all = 0;
  for (const FlatBucket& bucket : buckets_) all += bucket.trains ? bucket.elements : 0;
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

void ZeroEngine::Impl::Start() {
  if (options_.stage < 3) {
    for (nn::Module* model : models_) BroadcastParameters(*model, group_);
  }
  optimizer().RefreshMasterWeights();
}

// --- A step --------------------------------------------------------------------------------------

void ZeroEngine::Impl::BeginStep(int64_t micro_batches, std::optional<optim::StepInputs> early) {
  if (whole_optimizer_ != nullptr) {
    TESSERA_CHECK(!early, "zero", "early updates are off-loaded buckets', and stage 0 has none");
    whole_optimizer_->ZeroGrad();
    if (reducer_ != nullptr) reducer_->BeginStep(micro_batches);
    return;
  }
  TESSERA_CHECK(!early || !options_.find_unused_parameters, "zero",
                "early updates do not go with find_unused_parameters");
  early_ = std::move(early);
  std::fill(updated_.begin(), updated_.end(), false);
  gradients_->BeginStep(micro_batches);
}

void ZeroEngine::Impl::BeginMicroBatch(int64_t m, int model) {
  if (reducer_ != nullptr) reducer_->BeginMicroBatch(m);
  if (gradients_ == nullptr) return;
  if (units_ != nullptr) units_->ReleaseAll();
  gradients_->BeginMicroBatch(m, model);
}

// The share of a bucket's gradients is whole.
void ZeroEngine::Impl::OnLanded(size_t bucket) {
  if (!early_ || !offloaded_[bucket]) return;
  if (worker_ == nullptr) worker_ = std::make_unique<HostWorker>();
  updated_[bucket] = true;
  // The bucket's parameters are not needed any more in this step: its gradients are complete.
  worker_->Do([this, bucket] { optimizer_->Update(bucket, *gradients_, *early_); });
}

void ZeroEngine::Impl::Finish() {
  if (whole_optimizer_ != nullptr) {
    if (reducer_ != nullptr) reducer_->Finish();
    for (nn::Module* model : models_) SumPartialGradients(*model);
    return;
  }
  if (units_ != nullptr) units_->ReleaseAll();
  gradients_->Finish();
}

optim::ClipResult ZeroEngine::Impl::Clip(const optim::ClipOptions& options) {
  if (whole_optimizer_ != nullptr) return optim::ClipGradNorm(parameters_, options);
  std::map<std::string, const optim::Parameter*> by_name;
  for (const optim::Parameter& p : parameters_) by_name[p.name] = &p;
  const Tensor squared = norm_->SquaredNorm(*gradients_, [&](const FlatSlot& slot) {
    return !options.counted || options.counted(*by_name.at(slot.name));
  });
  if (options.reduce) options.reduce(squared);
  return optim::ClipFromSquaredNorm(squared, options);
}

void ZeroEngine::Impl::BumpVersions(const FlatBucket& bucket) {
  for (const FlatSlot& slot : bucket.slots) slot.leaf.storage()->BumpVersion();
}

void ZeroEngine::Impl::Step(const optim::StepInputs& inputs) {
  if (whole_optimizer_ != nullptr) {
    whole_optimizer_->Step(inputs);
    whole_optimizer_->ZeroGrad();
    return;
  }
  const NoGrad no_grad;
  if (worker_ != nullptr) worker_->Wait();
  ReleaseGathered();
  std::vector<CommHandlePtr> travelling;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const FlatBucket& bucket = buckets_[b];
    if (!bucket.trains) continue;
    if (!updated_[b]) optimizer_->Update(b, *gradients_, inputs);
    optimizer_->WriteBack(b);
    if (options_.stage == 3) {
      shards_[b]->Release(/*keep=*/false);  // what is persistent is gathered again
      shards_[b]->BumpVersions();
      continue;
    }
    BumpVersions(bucket);
    if (group_->size() > 1) {
      const Tensor share = FlatView(flats_[b], group_->rank() * bucket.share, bucket.share);
      travelling.push_back(group_->AllGather(flats_[b], share));
    }
  }
  optimizer_->Advance(inputs);
  for (const CommHandlePtr& handle : travelling) handle->Wait();
  gradients_->Drop();
  early_.reset();
  GatherPersistent();
}

void ZeroEngine::Impl::GatherPersistent() {
  for (size_t b = 0; b < shards_.size(); ++b) {
    if (buckets_[b].persistent) shards_[b]->Gather();
  }
}

// --- Reading and writing -------------------------------------------------------------------------

void ZeroEngine::Impl::AppendWeights(std::vector<CheckpointTensor>* entries) {
  if (options_.stage < 3) {
    for (nn::Module* model : models_) {
      model->VisitParameters([&](nn::Parameter& p) {
        if (p.tied_to != nullptr) return;
        entries->push_back({"model." + p.name, p.tensor.Detach(), p.placement});
      });
    }
    return;
  }
  for (size_t b = 0; b < buckets_.size(); ++b) {
    for (const FlatSlot& slot : buckets_[b].slots) {
      const ElementRange range = buckets_[b].PieceOf(slot, group_->rank());
      const Tensor piece =
          FlatView(shards_[b]->share(),
                   range.begin == range.end ? 0 : buckets_[b].PlaceOf(slot, range, group_->rank()),
                   range.end - range.begin);
      AppendPieceEntries("model." + slot.name, piece, slot.placement, range, entries);
    }
  }
}

std::vector<CheckpointTensor> ZeroEngine::Impl::CheckpointTensors() {
  ReleaseGathered();
  std::vector<CheckpointTensor> entries;
  AppendWeights(&entries);
  const auto add_step = [&](const Tensor& step) {
    entries.push_back({"optimizer.step", step, Placement::Whole(step.shape())});
  };
  if (whole_optimizer_ != nullptr) {
    whole_optimizer_->VisitState([&](const std::string& parameter, const std::string& state,
                                     const Tensor& t, const Placement&) {
      if (parameter.empty()) {
        entries.push_back({"optimizer." + state, t, Placement::Whole(t.shape())});
      } else {
        entries.push_back(
            {"optimizer." + optim::StateName(parameter, state), t, placements_.at(parameter)});
      }
    });
    return entries;
  }
  add_step(optimizer_->step());
  optimizer_->VisitPieces([&](const FlatSlot& slot, const ElementRange& range,
                              const std::string& state, const Tensor& t) {
    AppendPieceEntries("optimizer." + optim::StateName(slot.name, state), t, slot.placement, range,
                       &entries);
  });
  return entries;
}

void ZeroEngine::Impl::Loaded(bool with_states) {
  if (whole_optimizer_ != nullptr) {
    if (!with_states) whole_optimizer_->RefreshMasterWeights();
    return;
  }
  ReleaseGathered(/*keep=*/false);
  for (const auto& shard : shards_) {
    shard->Release(/*keep=*/false);
    shard->BumpVersions();
  }
  GatherPersistent();
  if (with_states) {
    optimizer_->RefreshCopies();
  } else {
    optimizer_->RefreshMasterWeights();
  }
}

void ZeroEngine::Impl::ReleaseGathered(bool keep) {
  if (units_ != nullptr) units_->ReleaseAll(keep);
}

Tensor ZeroEngine::Impl::Whole(nn::Parameter& parameter) {
  const nn::Parameter& source = parameter.tied_to != nullptr ? *parameter.tied_to : parameter;
  if (options_.stage < 3) return source.tensor.Detach();
  const auto unit = static_cast<size_t>(unit_of_.at(&source));
  for (size_t other = 0; other < units_->units().size(); ++other) {
    if (other != unit) units_->Release(other);
  }
  units_->Gather(unit);
  return CastCopy(source.tensor.Detach(), source.tensor.dtype());
}

std::map<std::string, Tensor> ZeroEngine::Impl::FullStateDict(bool rank0_only) {
  std::map<std::string, Tensor> state;
  for (nn::Module* model : models_) {
    model->VisitParameters([&](nn::Parameter& p) {
      if (p.tied_to != nullptr) return;
      const Tensor whole = Whole(p);
      if (rank0_only && group_->rank() != 0) return;
      state[p.name] = whole.device() == Device::Cpu() ? CastCopy(whole, whole.dtype())
                                                      : CopyTo(whole, Device::Cpu());
    });
  }
  ReleaseGathered();
  return state;
}

// --- The engine ----------------------------------------------------------------------------------

ZeroEngine::ZeroEngine(std::vector<nn::Module*> models, std::vector<optim::ParameterGroup> groups,
                       OptimizerFactory make_optimizer, std::shared_ptr<Communicator> group,
                       const ZeroOptions& options, const SharedGradients& shared)
    : impl_(std::make_unique<Impl>(std::move(models), std::move(groups), std::move(make_optimizer),
                                   std::move(group), options, shared)) {}
ZeroEngine::~ZeroEngine() = default;

void ZeroEngine::Start() { impl_->Start(); }
void ZeroEngine::BeginStep(int64_t micro_batches, std::optional<optim::StepInputs> early) {
  impl_->BeginStep(micro_batches, std::move(early));
}
void ZeroEngine::BeginMicroBatch(int64_t m, int model) { impl_->BeginMicroBatch(m, model); }
void ZeroEngine::Finish() { impl_->Finish(); }
optim::ClipResult ZeroEngine::Clip(const optim::ClipOptions& options) {
  return impl_->Clip(options);
}
void ZeroEngine::Step(const optim::StepInputs& inputs) { impl_->Step(inputs); }
optim::Optimizer& ZeroEngine::optimizer() { return impl_->optimizer(); }
std::vector<CheckpointTensor> ZeroEngine::CheckpointTensors() { return impl_->CheckpointTensors(); }
void ZeroEngine::Loaded(bool with_states) { impl_->Loaded(with_states); }
Tensor ZeroEngine::Whole(nn::Parameter& parameter) { return impl_->Whole(parameter); }
std::map<std::string, Tensor> ZeroEngine::FullStateDict(bool rank0_only) {
  return impl_->FullStateDict(rank0_only);
}
void ZeroEngine::ReleaseGathered() { impl_->ReleaseGathered(); }
int64_t ZeroEngine::num_buckets() const { return impl_->num_buckets(); }

std::vector<std::string> ZeroEngine::UnitNames() const {
  std::vector<std::string> names;
  if (impl_->units() == nullptr) return names;
  for (const Unit& unit : impl_->units()->units()) names.push_back(unit.name);
  return names;
}

ZeroEngine::GatherCounts ZeroEngine::gather_counts() const {
  return impl_->units() == nullptr ? GatherCounts{} : impl_->units()->counts();
}

}  // namespace tessera::dist
