// SPDX-License-Identifier: Apache-2.0
#include "dist/store/sharded_optimizer.h"

#include <map>
#include <utility>

#include "autograd/autograd.h"
#include "dist/store/host_memory.h"
#include "optim/update_kernel.h"

namespace tessera::dist {

ShardedOptimizer::ShardedOptimizer(const StoreContents& contents,
                                   const std::vector<FlatBucket>& buckets,
                                   std::vector<Tensor> shares, const std::vector<bool>& offloaded,
                                   const OptimizerFactory& make,
                                   std::function<void(const optim::StepInputs&)> step)
    : buckets_(buckets), step_function_(std::move(step)) {
  const NoGrad no_grad;
  for (const optim::ParameterGroup& group : contents.groups) {
    groups_.push_back(group);
    groups_.back().parameters.clear();
  }
  const Device device = contents.device();
  Tensor learning_rate;
  for (size_t b = 0; b < buckets.size(); ++b) {
    const FlatBucket& bucket = buckets[b];
    const int rank = bucket.ranks->rank();
    Part part;
    if (bucket.trains) {
      part.share = std::move(shares[b]);
      if (offloaded[b] && !IsHostMemory(part.share.device())) {
        part.copy = CopyTo(part.share, HostMemoryOf(bucket.device));
      }
      const Tensor& updated = part.copy.defined() ? part.copy : part.share;
      std::vector<optim::ParameterGroup> mine = groups_;
      for (optim::ParameterGroup& group : mine) group.parameters.clear();
      for (size_t s = 0; s < bucket.slots.size(); ++s) {
        const FlatSlot& slot = bucket.slots[s];
        const ElementRange range = bucket.PieceOf(slot, rank);
        if (range.begin == range.end) continue;
        Tensor leaf = bucket.PieceOfShare(updated, slot, rank);
        if (slot.whole) {
          const Shape& shape = slot.leaf.shape();
          leaf = leaf.AsStrided(shape, ContiguousStrides(shape), leaf.offset());
        }
        RequireGrad(leaf, bucket.grad_dtype);
        optim::Parameter piece{slot.name, leaf, {}};
        if (slot.whole) {  // what else is known of it holds for the leaf too
          piece = slot.parameter;
          piece.tensor = leaf;
          piece.tied.clear();
        }
        mine[slot.group].parameters.push_back(piece);
        groups_[slot.group].parameters.push_back(piece);
        part.pieces.push_back({s, range, leaf});
      }
      std::vector<optim::ParameterGroup> filled;
      for (optim::ParameterGroup& group : mine) {
        if (!group.parameters.empty()) filled.push_back(std::move(group));
      }
      // A rank without a piece asks too, so that every rank knows the learning rate.
      part.optimizer = make(std::move(filled));
      learning_rate = part.optimizer->learning_rate();
      if (part.pieces.empty()) part.optimizer = nullptr;
    }
    parts_.push_back(std::move(part));
  }
  learning_rate_ = Zeros({}, DType::kFloat64, device);
  if (learning_rate.defined()) CopyInto(learning_rate_, CopyTo(learning_rate, device));
  step_ = Zeros({}, DType::kInt64, device);
}

void ShardedOptimizer::VisitPieces(const PieceVisitor& visit) const {
  for (size_t b = 0; b < parts_.size(); ++b) {
    const Part& part = parts_[b];
    if (part.optimizer == nullptr) continue;
    std::map<std::string, const Piece*> by_name;
    for (const Piece& piece : part.pieces) by_name[buckets_[b].slots[piece.slot].name] = &piece;
    part.optimizer->VisitState([&](const std::string& name, const std::string& state,
                                   const Tensor& t, const Placement& placement) {
      if (name.empty()) return;  // the step, which is counted here
      const Piece& piece = *by_name.at(name);
      visit(buckets_[b].slots[piece.slot], piece.range, state, t, placement);
    });
  }
}

void ShardedOptimizer::VisitState(const optim::StateVisitor& visit) const {
  visit("", "step", step_, Placement::Whole({}));
  VisitPieces([&](const FlatSlot& slot, const ElementRange&, const std::string& state,
                  const Tensor& t,
                  const Placement& placement) { visit(slot.name, state, t, placement); });
}

void ShardedOptimizer::RefreshMasterWeights() {
  RefreshCopies();
  for (const Part& part : parts_) {
    if (part.optimizer != nullptr) part.optimizer->RefreshMasterWeights();
  }
}

void ShardedOptimizer::RefreshCopies() {
  const NoGrad no_grad;
  for (const Part& part : parts_) {
    if (part.copy.defined()) CopyInto(part.copy, part.share);
  }
}

void ShardedOptimizer::Update(size_t b, const std::vector<Tensor>& gradients,
                              const optim::StepInputs& inputs) {
  Part& part = parts_[b];
  if (part.optimizer == nullptr) return;
  const NoGrad no_grad;
  for (const Piece& piece : part.pieces) {
    const Tensor& flat = gradients[piece.slot];
    const Shape& shape = piece.leaf.shape();
    SetGrad(piece.leaf, flat.defined()
                            ? flat.AsStrided(shape, ContiguousStrides(shape), flat.offset())
                            : Tensor());
  }
  const Device& device = part.pieces.front().leaf.device();
  CopyInto(part.optimizer->learning_rate(), learning_rate_);
  CopyInto(part.optimizer->step(), step_);
  part.optimizer->Step(InputsAt(inputs, device));
  for (const Piece& piece : part.pieces) SetGrad(piece.leaf, Tensor());
}

void ShardedOptimizer::WriteBack(size_t b) {
  const Part& part = parts_[b];
  if (part.copy.defined()) CopyInto(part.share, part.copy);
}

void ShardedOptimizer::Advance(const optim::StepInputs& inputs) {
  const optim::StepInputs here = InputsAt(inputs, step_.device());
  optim::UpdateScalars scalars{};
  scalars.learning_rate = static_cast<const double*>(learning_rate_.raw_data());
  scalars.step = static_cast<int64_t*>(step_.raw_data());
  if (here.found_inf.defined()) {
    scalars.found_inf = static_cast<const float*>(here.found_inf.raw_data());
  }
  optim::advance_step.Launch(step_.device(), {scalars});
}

}  // namespace tessera::dist
