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
      group_(contents.ranks.data),
      optimizer_(make_optimizer(contents.groups)),
      follows_first_step_(options.static_graph) {
  FindLeaves();
  order_.resize(leaves_.size());
  std::iota(order_.rbegin(), order_.rend(), size_t{0});  // about as gradients come
}

// A tied leaf follows its parameter; where uses lie on several stages, each has its own place.
void ReplicatedParameters::FindLeaves() {
  if (contents_.stage == nullptr) {
    for (const optim::Parameter& p : contents_.parameters) {
      leaves_.push_back({p.name, p.tensor, 0});
      for (const Tensor& tied : p.tied) leaves_.push_back({p.name + " (tied)", tied, 0});
    }
    return;
  }
  for (size_t c = 0; c < contents_.chunks.size(); ++c) {
    for (const nn::Parameter* p : contents_.stage->LeavesOfChunk(static_cast<int>(c))) {
      leaves_.push_back({p->name, p->tensor, static_cast<int>(c)});
    }
  }
}

// A new lane for each model, dtype and device, and when the cap would be exceeded.
std::vector<LaneLayout> ReplicatedParameters::LayOut() const {
  const double cap = options_.bucket_cap_mb * 1048576;
  std::vector<LaneLayout> lanes;
  std::map<int, size_t> open;  // by model
  for (const size_t index : order_) {
    const Leaf& leaf = leaves_[index];
    const DType dtype = GradDType(leaf.leaf);
    const Device& device = leaf.leaf.device();
    const int64_t numel = leaf.leaf.numel();
    const auto found = open.find(leaf.model);
    const bool fits =
        found != open.end() && lanes[found->second].dtype == dtype &&
        lanes[found->second].device == device &&
        static_cast<double>(lanes[found->second].elements + numel) * DTypeSize(dtype) <= cap;
    if (!fits) {
      open[leaf.model] = lanes.size();
      lanes.push_back({.leaves = {}, .dtype = dtype, .device = device, .model = leaf.model});
    }
    LaneLayout& lane = lanes[open[leaf.model]];
    lane.leaves.push_back({leaf.name, leaf.leaf, lane.elements, index});
    lane.elements += numel;
  }
  const int64_t ranks = group_->size();
  for (LaneLayout& lane : lanes) lane.elements = (lane.elements + ranks - 1) / ranks * ranks;
  return lanes;
}

void ReplicatedParameters::MakeLanes() {
  lanes_ = nullptr;  // its hooks go first
  lanes_ = std::make_unique<GradientLanes>(
      LayOut(), group_,
      GradientLanes::Options{.models = static_cast<int>(contents_.chunks.size()),
                             .deterministic = options_.deterministic,
                             .overlap = options_.overlap,
                             .in_place = options_.gradient_as_bucket_view});
}

void ReplicatedParameters::BeginStep(int64_t micro_batches,
                                     const std::optional<optim::StepInputs>&) {
  const bool needs_lanes = group_->size() > 1 || (options_.deterministic && micro_batches > 1);
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
  const auto count = static_cast<int64_t>(lanes_->size());
  const Tensor mine = Zeros({count}, DType::kInt64);
  for (size_t l = 0; l < lanes_->size(); ++l) {
    if (lanes_->whole(l).device().is_meta()) continue;  // all are alike
    const Tensor data = CopyTo(lanes_->whole(l), Device::Cpu());
    mine.data<int64_t>()[l] = Crc32c(data.raw_data(), static_cast<size_t>(data.nbytes()));
  }
  const Tensor all = Empty({group_->size(), count}, DType::kInt64);
  group_->AllGather(all, mine)->Wait();
  const int64_t* sums = all.data<int64_t>();
  for (int64_t r = 1; r < group_->size(); ++r) {
    for (int64_t l = 0; l < count; ++l) {
      TESSERA_CHECK(sums[r * count + l] == sums[l], "check_reduction", "ranks 0 and ", r,
                    " of group ", group_->name(), " have other sums in the bucket of '",
                    lanes_->layout(static_cast<size_t>(l)).leaves[0].name, "'");
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
  const Tensor order = Tensor::FromVector(std::vector<int64_t>(arrival.begin(), arrival.end()),
                                          {std::ssize(arrival)});
  if (group_->size() > 1) group_->Broadcast(order, 0)->Wait();
  const std::vector<int64_t> agreed = order.ToVector<int64_t>();
  order_.assign(agreed.begin(), agreed.end());
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
