// SPDX-License-Identifier: Apache-2.0
// Steps that are taken again, to look at what a run did.
#include <algorithm>
#include <utility>

#include "base/file.h"
#include "train/ranks/agreement.h"
#include "train/trace/digest.h"
#include "train/trace/tensor_capture.h"
#include "train/trainer.h"

namespace tessera::train {
namespace {

RetakenTensor WholeTensor(const std::string& name, const Tensor& t) {
  return {.name = name,
          .data = CopyTo(t, Device::Cpu()).ContiguousCopy(),
          .begin = Shape(std::vector<int64_t>(static_cast<size_t>(t.ndim()), 0)),
          .size = t.shape()};
}

// The part of a weight or a state that `wanted` names, where this rank has it.
std::vector<RetakenTensor> PartOf(const std::vector<dist::CheckpointTensor>& tensors,
                                  const TracedTensor& wanted) {
  for (const dist::CheckpointTensor& t : tensors) {
    if (t.name != wanted.name) continue;
    const std::vector<PartDigest> digests = DigestsOf(t);
    const std::vector<dist::LocalPart> parts = dist::LocalParts(t);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (digests[i].part != wanted.part || digests[i].digest != wanted.digest) continue;
      const dist::Piece& piece = parts[i].piece;
      return {{.name = t.name,
               .data = CopyTo(parts[i].data, Device::Cpu()).ContiguousCopy(),
               .begin = piece.box.begin,
               .size = piece.box.size,
               .offset = piece.range ? piece.range->begin : 0}};
    }
  }
  return {};
}

}  // namespace

Trainer::NextBatch Trainer::NextBatches() const {
  return [this, number = state_.step * config_.accumulation_steps()]() mutable {
    return TrainBatch(number++);
  };
}

Status Trainer::TakeAgainFrom(const dist::Checkpoint& checkpoint) {
  TESSERA_RETURN_IF_ERROR(LoadFrom(checkpoint));
  StatusOr<ResumeState> saved = ResumeState::Of(checkpoint);
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, saved.status()));
  saved->RestoreState(&state_);
  state_.step = checkpoint.step();
  loop_->Restore(state_.step, 0);
  return PlanSteps(saved->PositionAt(state_.step, samples_per_epoch()), saved->length_group);
}

// From the newest checkpoint that is whole and not after `step`; without one, from the beginning.
Status Trainer::TakeAgainBefore(int64_t step) {
  std::vector<int64_t> steps = dist::ListCheckpoints(config_.out);
  while (true) {
    int64_t newest = -1;
    while (newest < 0 && !steps.empty()) {
      if (steps.back() <= step && mesh_.world()->rank() == 0) newest = steps.back();
      steps.pop_back();
    }
    newest = GreatestOf(newest, mesh_);
    if (newest < 0) return OkStatus();
    const auto opened = checkpoints_.Open(dist::CheckpointPath(config_.out, newest), log_);
    if (opened.ok() && opened->step() == newest) return TakeAgainFrom(*opened);
  }
}

StatusOr<std::optional<BadStep>> Trainer::Replay() {
  TESSERA_RETURN_IF_ERROR(PrepareSteps());
  TESSERA_RETURN_IF_ERROR(MakeEngine());
  TESSERA_ASSIGN_OR_RETURN(const dist::Checkpoint before,
                           checkpoints_.Open(JoinPath(config_.out, kBadStep), log_));
  TESSERA_RETURN_IF_ERROR(TakeAgainFrom(before));
  const StepBatches step = FetchStep(NextBatches());
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, step.status));
  loop_->Restore(++state_.step, 0);
  return FirstBadStep(loop_->FindBadNumber(BundlesOf(step), WholeStepOf(step)));
}

StatusOr<std::vector<RetakenTensor>> Trainer::Retake(const TracedTensor& wanted) {
  const bool is_state = wanted.kind == TracedTensor::Kind::kState;
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, PrepareSteps()));
  TESSERA_RETURN_IF_ERROR(MakeEngine());
  TESSERA_RETURN_IF_ERROR(TakeAgainBefore(is_state ? wanted.step : wanted.step - 1));
  const bool is_here = mesh_.world()->rank() == wanted.rank;
  // A watched step may round otherwise than one that nobody watches, and the run watched all.
  TensorCapture capture(wanted);
  const TapeWatcher::Scope scope(&capture);
  std::vector<RetakenTensor> taken;
  while (state_.step < wanted.step) {
    const StepBatches step = FetchStep(NextBatches());
    TESSERA_RETURN_IF_ERROR(Agree(mesh_, step.status));
    const bool is_last = state_.step + 1 == wanted.step;
    if (is_last && wanted.kind == TracedTensor::Kind::kData) {
      const int64_t own =
          wanted.place.micro_batch - mesh_.data_rank() * config_.accumulation_steps();
      if (!is_here || own < 0 || own >= std::ssize(step.batches)) return taken;
      const models::Bundle& batch = step.batches[static_cast<size_t>(own)].tensors;
      for (const auto& [name, tensor] : batch.entries()) {
        if (tensor.defined()) taken.push_back(WholeTensor(name, tensor));
      }
      if (BatchDigest(batch) != wanted.digest) taken.clear();
      return taken;
    }
    if (is_last) capture.Begin();
    RunStep(step);
  }
  if (!is_here) return taken;
  if (is_state) return PartOf(engine_->Tensors(), wanted);
  if (capture.tensor().defined() && DigestOf(capture.tensor()) == wanted.digest) {
    taken.push_back(WholeTensor("", capture.tensor()));
  }
  return taken;
}

}  // namespace tessera::train
