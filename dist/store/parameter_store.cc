// SPDX-License-Identifier: Apache-2.0
#include "dist/store/parameter_store.h"

#include <algorithm>
#include <set>
#include <utility>

#include "autograd/autograd.h"
#include "base/error.h"
#include "dist/store/gradient_norm.h"
#include "dist/store/replicas.h"
#include "dist/store/replicated_parameters.h"
#include "dist/store/sharded_parameters.h"
#include "dist/store/store_policy.h"
#include "optim/modules/module_parameters.h"

namespace tessera::dist {
namespace {

std::vector<std::vector<nn::Module*>> ChunksOf(const Stage& stage) {
  std::vector<std::vector<nn::Module*>> chunks;
  for (const Chunk& chunk : stage.chunks()) chunks.push_back(chunk.modules);
  return chunks;
}

// Of a weight on several stages, not every one has a gradient of its own.
ZeroOptions OptionsFor(ZeroOptions options, const Stage* stage) {
  options.find_unused_parameters =
      options.find_unused_parameters || (stage != nullptr && !stage->SharedWeights().empty());
  return options;
}

// An optimizer's parameter, and the group it is in.
struct Trained {
  const optim::Parameter* parameter;
  size_t group;
};

std::map<const AutogradRecord*, Trained> TrainedLeaves(
    const std::vector<optim::ParameterGroup>& groups) {
  std::map<const AutogradRecord*, Trained> trained;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const optim::Parameter& p : groups[g].parameters) {
      TESSERA_CHECK(RequiresGrad(p.tensor), "store", "'", p.name, "' does not train");
      trained[p.tensor.record().get()] = {&p, g};
    }
  }
  return trained;
}

// Leaves that no optimizer has, uses of tied weights included, have no gradient either.
void DropOthers(const std::vector<nn::Parameter*>& all,
                const std::vector<optim::Parameter>& parameters) {
  std::set<const AutogradRecord*> kept;
  for (const optim::Parameter& p : parameters) {
    kept.insert(p.tensor.record().get());
    for (const Tensor& tied : p.tied) kept.insert(tied.record().get());
  }
  for (const nn::Parameter* p : all) {
    if (p->elsewhere) continue;
    if (RequiresGrad(p->tensor) && kept.count(p->tensor.record().get()) == 0) DropGrad(p->tensor);
  }
}

}  // namespace

Device StoreContents::device() const { return optim::DeviceOf(AllParameters()); }

std::vector<nn::Parameter*> StoreContents::AllParameters() const {
  std::vector<nn::Parameter*> all;
  for (const std::vector<nn::Module*>& modules : chunks) {
    for (nn::Module* module : modules) {
      module->VisitParameters([&](nn::Parameter& p) { all.push_back(&p); });
    }
  }
  return all;
}

struct ParameterStore::Parts {
  const ZeroOptions options;
  StoreContents contents;
  std::unique_ptr<StorePolicy> policy = nullptr;
  const GatheredUnits* units = nullptr;  // the policy's
  std::unique_ptr<GradientNorm> norm = nullptr;
};

ParameterStore::ParameterStore(nn::Module& model, std::vector<optim::ParameterGroup> groups,
                               const OptimizerFactory& make_optimizer, const StoreGroups& ranks,
                               const ZeroOptions& options, const NeedsWhole& needs_whole)
    : ParameterStore({.chunks = {{&model}},
                      .ranks = ranks,
                      .groups = std::move(groups),
                      .needs_whole = needs_whole},
                     make_optimizer, options) {}

ParameterStore::ParameterStore(const Stage& stage, std::vector<optim::ParameterGroup> groups,
                               const OptimizerFactory& make_optimizer, const StoreGroups& ranks,
                               const ZeroOptions& options, const NeedsWhole& needs_whole)
    : ParameterStore({.chunks = ChunksOf(stage),
                      .stage = &stage,
                      .ranks = ranks,
                      .groups = std::move(groups),
                      .needs_whole = needs_whole},
                     make_optimizer, options) {}

ParameterStore::ParameterStore(StoreContents contents, const OptimizerFactory& make_optimizer,
                               const ZeroOptions& options)
    : parts_(new Parts{.options = OptionsFor(options, contents.stage),
                       .contents = std::move(contents)}) {
  const Status valid = options.Validate();
  TESSERA_CHECK(valid.ok(), "store", Message(valid));
  TESSERA_CHECK(!options.shards_parameters() || (parts_->contents.chunks.size() == 1 &&
                                                 parts_->contents.chunks.front().size() == 1),
                "store", "parameters are cut of one module, not of ",
                parts_->contents.chunks.size(), " chunks");
  TESSERA_CHECK(!options.deterministic || IsPowerOfTwo(parts_->contents.ranks.data->size()),
                "store", "deterministic sums need a power of two of ranks, not ",
                parts_->contents.ranks.data->size());
  const NoGrad no_grad;
  FindSlots();
  if (parts_->options.replicates()) {
    parts_->policy =
        std::make_unique<ReplicatedParameters>(parts_->contents, make_optimizer, parts_->options);
  } else {
    auto sharded = std::make_unique<ShardedParameters>(
        parts_->contents, make_optimizer, parts_->options,
        [this](const optim::StepInputs& inputs) { Step(inputs); });
    parts_->units = sharded->units();
    parts_->policy = std::move(sharded);
  }
  MakeNorm();
}

ParameterStore::~ParameterStore() = default;

void ParameterStore::FindSlots() {
  StoreContents& contents = parts_->contents;
  std::map<const AutogradRecord*, Trained> trained = TrainedLeaves(contents.groups);
  const std::vector<nn::Parameter*> all = contents.AllParameters();
  std::map<const AutogradRecord*, size_t> arrivals;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i]->tensor.record() != nullptr) arrivals[all[i]->tensor.record().get()] = i;
  }
  const std::vector<std::string> shared =
      contents.stage == nullptr ? std::vector<std::string>() : contents.stage->SharedWeights();
  std::map<const nn::Parameter*, int> chunk_of;
  for (size_t c = 0; c < contents.chunks.size(); ++c) {
    for (nn::Module* module : contents.chunks[c]) {
      module->VisitParameters([&](nn::Parameter& p) { chunk_of[&p] = static_cast<int>(c); });
    }
  }
  size_t order = 0;
  for (nn::Parameter* p : all) {
    if (p->tied_to != nullptr) continue;
    const size_t place = order++;
    if (p->elsewhere) continue;
    FlatSlot slot;
    slot.name = p->name;
    slot.leaf = p->tensor;
    slot.placement = p->placement;
    slot.ranks = contents.ranks.HoldersOf(*p);
    slot.order = place;
    slot.model = chunk_of.at(p);
    slot.gradient_group = p->gradient_group;
    slot.shared = std::find(shared.begin(), shared.end(), p->name) != shared.end();
    const auto found = trained.find(p->tensor.record().get());
    if (p->tensor.record() != nullptr && found != trained.end()) {
      const optim::Parameter& parameter = *found->second.parameter;
      slot.trains = true;
      slot.group = found->second.group;
      slot.parameter = parameter;
      slot.whole = contents.needs_whole != nullptr && contents.needs_whole(parameter);
      slot.tied = parameter.tied;
      slot.arrivals.push_back(arrivals.at(p->tensor.record().get()));
      for (const Tensor& tied : slot.tied) {
        const auto known = arrivals.find(tied.record().get());
        slot.arrivals.push_back(known == arrivals.end() ? 0 : known->second);
      }
      contents.parameters.push_back(parameter);
      trained.erase(found);
    }
    contents.slots.push_back(std::move(slot));
  }
  DropOthers(all, contents.parameters);
  TESSERA_CHECK(trained.empty(), "store", "'", trained.begin()->second.parameter->name,
                "' is no parameter of the models");
}

// Of the ranks that hold the same elements, one counts them.
void ParameterStore::MakeNorm() {
  const Stage* const stage = parts_->contents.stage;
  std::vector<MeasuredParameter> measured;
  for (const FlatSlot& slot : parts_->contents.slots) {
    if (!slot.trains) continue;
    const bool owned = stage == nullptr || stage->Owns(slot.name);
    const bool part = parts_->contents.ranks.tensor->rank() == 0 || !slot.placement.is_whole();
    measured.push_back({.counted = owned && part,
                        .ranks = slot.ranks,
                        .cut = parts_->policy->cuts_gradients() && slot.ranks->size() > 1});
  }
  parts_->norm = std::make_unique<GradientNorm>(std::move(measured), parts_->contents.ranks, stage,
                                                parts_->contents.device());
}

void ParameterStore::Start() {
  if (!parts_->options.shards_parameters()) {
    BroadcastParameters(parts_->contents.AllParameters(), parts_->contents.ranks);
  }
  optimizer().RefreshMasterWeights();
}

void ParameterStore::BeginStep(int64_t micro_batches,
                               const std::optional<optim::StepInputs>& inputs) {
  parts_->policy->BeginStep(micro_batches, inputs);
}

optim::Optimizer& ParameterStore::optimizer() { return parts_->policy->optimizer(); }

void ParameterStore::BeginMicroBatch(int64_t m, int chunk) {
  parts_->policy->BeginMicroBatch(m, chunk);
}

void ParameterStore::FinishGradients() { parts_->policy->FinishGradients(); }

optim::ClipResult ParameterStore::Clip(const optim::ClipOptions& options) {
  return optim::ClipFromSquaredNorm(parts_->norm->SquaredNorm(parts_->policy->Gradients()),
                                    options);
}

void ParameterStore::Step(const optim::StepInputs& inputs) { parts_->policy->Step(inputs); }

void ParameterStore::AbandonStep() { parts_->policy->AbandonStep(); }

GatheredScope ParameterStore::Gather(const std::vector<nn::Parameter*>& parameters, GatherFor use) {
  std::vector<Tensor> tensors;
  for (const nn::Parameter* p : parameters) tensors.push_back(p->tensor);
  if (parameters.empty()) {
    for (const FlatSlot& slot : parts_->contents.slots) tensors.push_back(slot.leaf);
  }
  return GatheredScope(tensors, use);
}

bool ParameterStore::forward_is_collective() const {
  const StoreGroups& ranks = parts_->contents.ranks;
  return ranks.experts->size() > 1 ||
         (parts_->options.shards_parameters() && ranks.data->size() > 1);
}

const char* ParameterStore::WhyNotCaptured(int64_t micro_batches) const {
  const ZeroOptions& options = parts_->options;
  if (!options.replicates()) return "parameters or states elsewhere";
  if (options.deterministic && micro_batches > 1) return "deterministic sums of micro-batches";
  return nullptr;
}

std::vector<CheckpointTensor> ParameterStore::CheckpointTensors() {
  std::vector<CheckpointTensor> entries;
  parts_->policy->AppendTensors(&entries);
  std::set<std::string> left_out;
  for (const nn::Parameter* p : parts_->contents.AllParameters()) {
    const bool quantised = p->form != nullptr && !p->can_train;  // a folder has its bytes
    const bool frozen = p->can_train && p->tied_to == nullptr && !RequiresGrad(p->tensor);
    if (quantised || (frozen && !parts_->options.frozen_in_checkpoints)) {
      left_out.insert("model." + p->name);
    }
  }
  std::erase_if(entries, [&](const CheckpointTensor& t) { return left_out.count(t.name) > 0; });
  return entries;
}

void ParameterStore::Loaded(bool with_states) { parts_->policy->Loaded(with_states); }

std::map<std::string, Tensor> ParameterStore::FullStateDict(bool rank0_only) {
  std::map<std::string, Tensor> state;
  GatheredScope scope;  // what lies in one bucket is gathered once
  for (const FlatSlot& slot : parts_->contents.slots) {
    scope = GatheredScope({slot.leaf});
    if (rank0_only && parts_->contents.ranks.data->rank() != 0) continue;
    const Tensor whole = slot.leaf.Detach();
    state[slot.name] = whole.device() == Device::Cpu() ? CastCopy(whole, whole.dtype())
                                                       : CopyTo(whole, Device::Cpu());
  }
  return state;
}

std::vector<std::vector<std::string>> ParameterStore::BucketNames() const {
  return parts_->policy->BucketNames();
}

std::vector<std::string> ParameterStore::UnitNames() const {
  std::vector<std::string> names;
  if (parts_->units == nullptr) return names;
  for (const Unit& unit : parts_->units->units()) names.push_back(unit.name);
  return names;
}

GatherCounts ParameterStore::gather_counts() const {
  return parts_->units == nullptr ? GatherCounts{} : parts_->units->counts();
}

}  // namespace tessera::dist
