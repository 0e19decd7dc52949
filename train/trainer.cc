// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <utility>

#include "nlohmann/json.hpp"
#include "train/trainer_run.h"

namespace tessera::train {

Trainer::Trainer(const RunConfig& config, models::Model& model, const TaskData& data,
                 const dist::Mesh& mesh, TrainerParts parts)
    : run_(std::make_unique<Run>(config, model, data, mesh, std::move(parts))) {}

Trainer::~Trainer() = default;

void Trainer::AddCallback(TrainerCallback* callback) { run_->AddCallback(callback); }

StatusOr<TrainResult> Trainer::Train(const TrainOptions& options) { return run_->Train(options); }

Status Trainer::Rehearse(const std::function<void(RunPhase phase)>& ended) {
  return run_->Rehearse(ended);
}

std::vector<dist::CheckpointTensor> Trainer::CheckpointTensors() {
  return run_->CheckpointTensors();
}

double Trainer::steps_per_epoch() const { return run_->steps_per_epoch(); }

StatusOr<std::optional<BadStep>> Trainer::Replay(int64_t step, models::Bundle* tensors) {
  return run_->Replay(step, tensors);
}

StatusOr<std::vector<TensorPart>> Trainer::Retake(const TracedTensor& wanted) {
  return run_->Retake(wanted);
}

StatusOr<EvaluationResult> Trainer::Evaluate(const BatchSource& batches) {
  return run_->Evaluate(batches);
}

StatusOr<EvaluationResult> Trainer::Evaluate(const data::Dataset& dataset, int64_t max_batches) {
  return run_->Evaluate(dataset, max_batches);
}

StatusOr<PredictionResult> Trainer::Predict(const BatchSource& batches) {
  return run_->Predict(batches);
}

StatusOr<PredictionResult> Trainer::Predict(const data::Dataset& dataset) {
  return run_->Predict(dataset);
}

StatusOr<PredictionResult> Trainer::Predict() { return run_->Predict(); }

Status Trainer::SaveModel(const std::string& folder, const data::Tokenizer* tokenizer) {
  return run_->SaveModel(folder, tokenizer);
}

void Trainer::ReleaseStepMemory() { run_->ReleaseStepMemory(); }

const TrainState& Trainer::state() const { return run_->state(); }

models::Model& Trainer::model() { return run_->model(); }

}  // namespace tessera::train
