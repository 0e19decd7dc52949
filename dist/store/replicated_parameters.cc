// SPDX-License-Identifier: Apache-2.0
#include "dist/store/replicated_parameters.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "autograd/autograd.h"
#include "base/checksum.h"
#include "base/error.h"
#include "dist/store/replicas.h"

namespace tessera::dist {

ReplicatedParameters::ReplicatedParameters(const StoreContents& contents,
                                           const OptimizerFactory& make_optimizer,
                                           const ZeroOptions& options)
    : contents_(contents),
      options_(options),
      optimizer_(make_optimizer(contents.groups)),
      follows_first_step_(options.static_graph) {
  FindLeaves();
  order_.resize(leaves_.size());
  std::iota(order_.rbegin(), order_.rend(), size_t{0});  // about as gradients come
}

// A tied leaf follows its parameter; where uses lie on several stages, each has its own place.
void ReplicatedParameters::FindLeaves() {
  if (contents_.stage == nullptr) {
    for (const FlatSlot& slot : contents_.slots) {
      if (!slot.trains) continue;
      leaves_.push_back({slot.name, slot.leaf, slot.ranks, 0});
      for (const Tensor& tied : slot.tied) {
        leaves_.push_back({slot.name + " (tied)", tied, slot.ranks, 0});
      }
    }
    return;
  }
  for (size_t c = 0; c < contents_.chunks.size(); ++c) {
    for (const nn::Parameter* p : contents_.stage->LeavesOfChunk(static_cast<int>(c))) {
      const auto& ranks = contents_.ranks.HoldersOf(*p);
      leaves_.push_back({p->name, p->tensor, ranks, static_cast<int>(c)});
      for (const Tensor& leaf : p->by_source) {
        leaves_.push_back({p->name, leaf, ranks, static_cast<int>(c)});
      }
    }
  }
}

// A new lane for each model, group, dtype and device, and when the cap would be exceeded.
std::vector<LaneLayout> ReplicatedParameters::LayOut() const {
  const double cap = options_.bucket_cap_mb * 1048576;
  std::vector<LaneLayout> lanes;
  std::map<std::pair<int, const Communicator*>, size_t> open;  // by model and group
  for (const size_t index : order_) {
    const Leaf& leaf = leaves_[index];
    const DType dtype = GradDType(leaf.leaf);
    const Device& device = leaf.leaf.device();
    const int64_t numel = leaf.leaf.numel();
    const std::pair key(leaf.model, leaf.ranks.get());
    const auto found = open.find(key);
    const bool fits =
        found != open.end() && lanes[found->second].dtype == dtype &&
        lanes[found->second].device == device &&
        static_cast<double>(lanes[found->second].elements + numel) * DTypeSize(dtype) <= cap;
    if (!fits) {
      open[key] = lanes.size();
      lanes.push_back({.leaves = {},
                       .dtype = dtype,
                       .device = device,
                       .group = leaf.ranks,
                       .model = leaf.model});
    }
    LaneLayout& lane = lanes[open[key]];
    lane.leaves.push_back({leaf.name, leaf.leaf, lane.elements, index});
    lane.elements += numel;
  }
  for (LaneLayout& lane : lanes) {
    const int64_t ranks = lane.group->size();
    lane.elements = (lane.elements + ranks - 1) / ranks * ranks;
  }
  return lanes;
}

void ReplicatedParameters::MakeLanes() {
  lanes_ = nullptr;  // its hooks go first
  lanes_ = std::make_unique<GradientLanes>(
      LayOut(), GradientLanes::Options{.models = static_cast<int>(contents_.chunks.size()),
                                       .deterministic = options_.deterministic,
                                       .overlap = options_.overlap,
                                       .in_place = options_.gradient_as_bucket_view});
}

void ReplicatedParameters::BeginStep(int64_t micro_batches,
                                     const std::optional<optim::StepInputs>&) {
  const bool needs_lanes =
      contents_.ranks.data->size() > 1 || (options_.deterministic && micro_batches > 1);
  if (lanes_ == nullptr && needs_lanes) MakeLanes();
  if (lanes_ != nullptr) lanes_->BeginStep(micro_batches);
}

void ReplicatedParameters::BeginMicroBatch(int64_t m, int model) {
  if (lanes_ != nullptr) lanes_->BeginMicroBatch(m, model);
}

void ReplicatedParameters::FinishGradients() {
  const NoGrad no_grad;
  if (lanes_ != nullptr) {
    lanes_->Finish();
    lanes_->ShareUse(options_.find_unused_parameters);
    HandOver();
    if (options_.check_reduction) CompareOverRanks();
    if (follows_first_step_) FollowFirstStep();
  }
  // Ranks of a tensor-parallel group add what the data-parallel ranks have added, all of it.
  std::vector<optim::Parameter> by_source;
  for (const optim::Parameter& p : contents_.parameters) {
    if (p.adds_in_tree) by_source.push_back(p);
  }
  optim::JoinTiedGradients(by_source);
  SumPartialGradients(contents_.AllParameters());
  if (contents_.stage != nullptr) contents_.stage->JoinTiedGradients();
}

// Every leaf gets its part of the sums as its gradient.
void ReplicatedParameters::HandOver() {
  for (size_t l = 0; l < lanes_->size(); ++l) {
    for (size_t i = 0; i < lanes_->layout(l).leaves.size(); ++i) {
      const Tensor& leaf = lanes_->layout(l).leaves[i].leaf;
      if (!lanes_->used(l, i)) {
        SetGrad(leaf, Tensor());
        continue;
      }
      const Tensor view = lanes_->ViewOf(l, i, lanes_->whole(l));
      SetGrad(leaf, options_.gradient_as_bucket_view ? view : CastCopy(view, view.dtype()));
    }
  }
}

void ReplicatedParameters::CompareOverRanks() const {
  for (size_t l = 0; l < lanes_->size(); ++l) {
    const LaneLayout& layout = lanes_->layout(l);
    Communicator& group = *layout.group;
    const Tensor mine = Zeros({1}, DType::kInt64);
    if (!lanes_->whole(l).device().is_meta()) {  // there all are alike
      const Tensor data = CopyTo(lanes_->whole(l), Device::Cpu());
      mine.data<int64_t>()[0] = Crc32c(data.raw_data(), static_cast<size_t>(data.nbytes()));
    }
    const Tensor all = Empty({group.size()}, DType::kInt64);
    group.AllGather(all, mine)->Wait();
    const int64_t* sums = all.data<int64_t>();
    for (int r = 1; r < group.size(); ++r) {
      TESSERA_CHECK(sums[r] == sums[0], "check_reduction", "ranks 0 and ", r, " of group ",
                    group.name(), " have other sums in the bucket of '", layout.leaves[0].name,
                    "'");
    }
  }
}

// The order in which gradients came on rank 0, those that did not come last. Gradients keep the old
// lanes until the next step.
void ReplicatedParameters::FollowFirstStep() {
  follows_first_step_ = false;
  std::vector<size_t> arrival = lanes_->arrival();
  std::vector<bool> seen(leaves_.size(), false);
  for (const size_t index : arrival) seen[index] = true;
  for (size_t i = leaves_.size(); i-- > 0;) {
    if (!seen[i]) arrival.push_back(i);
  }
  // Of each group's leaves, by their numbers among them: those of other groups are not everywhere
  // the same.
  std::map<Communicator*, std::vector<size_t>> members;
  std::vector<int64_t> number;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    std::vector<size_t>& group = members[leaves_[i].ranks.get()];
    number.push_back(std::ssize(group));
    group.push_back(i);
  }
  std::map<Communicator*, std::vector<int64_t>> orders;
  for (const size_t index : arrival) orders[leaves_[index].ranks.get()].push_back(number[index]);
  for (Communicator* group : {contents_.ranks.data.get(), contents_.ranks.expert_data.get()}) {
    const auto order = orders.find(group);
    if (order == orders.end() || group->size() == 1) continue;
    const Tensor agreed = Tensor::FromVector(order->second, {std::ssize(order->second)});
    group->Broadcast(agreed, 0)->Wait();
    order->second = agreed.ToVector<int64_t>();
    if (contents_.ranks.expert_data == contents_.ranks.data) break;
  }
  std::map<Communicator*, size_t> next;
  order_.clear();
  for (const size_t index : arrival) {
    Communicator* const group = leaves_[index].ranks.get();
    order_.push_back(members[group][static_cast<size_t>(orders[group][next[group]++])]);
  }
  MakeLanes();
}

std::vector<Tensor> ReplicatedParameters::Gradients() {
  optim::JoinTiedGradients(contents_.parameters);
  std::vector<Tensor> gradients;
  for (const optim::Parameter& p : contents_.parameters) {
    gradients.push_back(optim::GradOrNone(p.tensor));
  }
  return gradients;
}

void ReplicatedParameters::Step(const optim::StepInputs& inputs) {
  optimizer_->Step(InputsAt(inputs, optimizer_->step().device()));
  optimizer_->ZeroGrad();
}

void ReplicatedParameters::AbandonStep() {
  if (lanes_ != nullptr) lanes_->Abandon();
  optimizer_->ZeroGrad();
}

void ReplicatedParameters::AppendTensors(std::vector<CheckpointTensor>* entries) {
  for (const FlatSlot& slot : contents_.slots) {
    entries->push_back({"model." + slot.name, slot.leaf.Detach(), slot.placement});
  }
  optimizer_->VisitState([&](const std::string& parameter, const std::string& state,
                             const Tensor& t, const Placement& placement) {
    entries->push_back({"optimizer." + optim::StateName(parameter, state), t, placement});
  });
}

void ReplicatedParameters::Loaded(bool with_states) {
  if (!with_states) optimizer_->RefreshMasterWeights();
}

std::vector<std::vector<std::string>> ReplicatedParameters::BucketNames() const {
  std::vector<std::vector<std::string>> buckets;
  for (const LaneLayout& lane : LayOut()) {
    std::vector<std::string>& names = buckets.emplace_back();
    for (const LaneLayout::Leaf& leaf : lane.leaves) names.push_back(leaf.name);
  }
  return buckets;
}

}  // namespace tessera::dist
