// SPDX-License-Identifier: Apache-2.0
// Steps that are taken again, to look at what a run did.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/file.h"
#include "train/ranks/agreement.h"
#include "train/trace/digest.h"
#include "train/trace/tensor_capture.h"
#include "train/trainer_run.h"

namespace tessera::train {
namespace {

// The tensors of a micro-batch, where it is the run's.
std::vector<TensorPart> PartsOfBatch(const models::Bundle& batch, uint64_t digest) {
  std::vector<TensorPart> parts;
  if (BatchDigest(batch) != digest) return parts;
  for (const auto& [name, tensor] : batch.entries()) {
    if (tensor.defined()) parts.push_back(WholePart(name, tensor));
  }
  return parts;
}

std::vector<TensorPart> PartsOfNamed(const std::vector<dist::CheckpointTensor>& tensors,
                                     const std::string& name) {
  std::vector<TensorPart> parts;
  for (const dist::CheckpointTensor& t : tensors) {
    if (t.name != name) continue;
    for (TensorPart& part : PartsOf(t)) parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<TensorPart> PartsOfGradients(const StepGradients& gradients, uint64_t digest) {
  std::vector<TensorPart> parts;
  const auto norm = std::bit_cast<double>(digest);
  if (gradients.norm != norm && !(std::isnan(gradients.norm) && std::isnan(norm))) return parts;
  for (const dist::CheckpointTensor& t : gradients.tensors) {
    for (TensorPart& part : PartsOf(t)) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

Trainer::Run::NextBatch Trainer::Run::NextBatches() const {
  return [this, number = state_.step * config_.accumulation_steps()]() mutable {
    return TrainBatch(number++);
  };
}

Status Trainer::Run::TakeAgainFrom(const dist::Checkpoint& checkpoint) {
  TESSERA_RETURN_IF_ERROR(LoadFrom(checkpoint));
  StatusOr<ResumeState> saved = ResumeState::Of(checkpoint);
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, saved.status()));
  saved->RestoreState(&state_);
  state_.step = checkpoint.step();
  loop_->Restore(state_.step, 0);
  return PlanSteps(saved->PositionAt(state_.step, samples_per_epoch()), saved->length_group);
}

// From the newest checkpoint that is whole and not after `step`; without one, from the beginning.
Status Trainer::Run::TakeAgainBefore(int64_t step) {
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

StatusOr<std::optional<BadStep>> Trainer::Run::Replay(int64_t step, models::Bundle* tensors) {
  TESSERA_RETURN_IF_ERROR(PrepareSteps());
  TESSERA_RETURN_IF_ERROR(MakeEngine());
  const std::string path = JoinPath(config_.out, kBadStep);
  if (!PathExists(path)) {
    return NotFound(path, ": no such directory; a run that had made the step's update keeps none");
  }
  TESSERA_ASSIGN_OR_RETURN(const dist::Checkpoint before, checkpoints_.Open(path, log_));
  if (before.step() + 1 != step) {
    return InvalidArgument(path, ": holds what step ", before.step() + 1, " began with, not step ",
                           step);
  }
  TESSERA_RETURN_IF_ERROR(TakeAgainFrom(before));
  const StepBatches batches = FetchStep(NextBatches());
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, batches.status));
  loop_->Restore(++state_.step, 0);
  std::optional<BadStep> bad =
      FirstBadStep(loop_->FindBadNumber(BundlesOf(batches), WholeStepOf(batches), tensors));
  if (tensors != nullptr && bad && bad->rank != mesh_.world()->rank()) *tensors = {};
  return bad;
}

StatusOr<std::vector<TensorPart>> Trainer::Run::Retake(const TracedTensor& wanted) {
  using Kind = TracedTensor::Kind;
  const bool is_state = wanted.kind == Kind::kState;
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, PrepareSteps()));
  TESSERA_RETURN_IF_ERROR(MakeEngine());
  TESSERA_RETURN_IF_ERROR(TakeAgainBefore(is_state ? wanted.step : wanted.step - 1));
  const bool is_here = mesh_.world()->rank() == wanted.rank;
  // A watched step may round otherwise than one that nobody watches, and the run watched all.
  TensorCapture capture(wanted);
  const TapeWatcher::Scope scope(&capture);
  while (state_.step < wanted.step) {
    const StepBatches step = FetchStep(NextBatches());
    TESSERA_RETURN_IF_ERROR(Agree(mesh_, step.status));
    const bool is_last = state_.step + 1 == wanted.step;
    if (is_last && wanted.kind == Kind::kData) {
      const int64_t own =
          wanted.place.micro_batch - mesh_.data_rank() * config_.accumulation_steps();
      if (!is_here || own < 0 || own >= std::ssize(step.batches)) return std::vector<TensorPart>();
      return PartsOfBatch(step.batches[static_cast<size_t>(own)].tensors, wanted.digest);
    }
    if (is_last && wanted.kind == Kind::kGradients) {
      return PartsOfGradients(loop_->Gradients(BundlesOf(step), WholeStepOf(step)), wanted.digest);
    }
    if (is_last) capture.Begin();
    RunStep(step);
  }
  if (is_state) return PartsOfNamed(engine_->Tensors(), wanted.name);
  if (!is_here || !capture.tensor().defined() || DigestOf(capture.tensor()) != wanted.digest) {
    return std::vector<TensorPart>();
  }
  return std::vector<TensorPart>{WholePart("", capture.tensor())};
}

}  // namespace tessera::train
