// SPDX-License-Identifier: Apache-2.0
// A run's evaluations and predictions.
#include <cmath>
#include <utility>

#include "autograd/autocast.h"
#include "base/error.h"
#include "core/execution_context.h"
#include "core/profiler.h"
#include "nlohmann/json.hpp"
#include "train/preferences/reference_pass.h"
#include "train/ranks/agreement.h"
#include "train/trainer_run.h"

namespace tessera::train {
namespace {

Status CheckEnds(const data::Dataset& dataset) {
  if (dataset.size() != data::kUnknownSize) return OkStatus();
  return InvalidArgument("the data do not say how many samples they have; say how many batches");
}

}  // namespace

Evaluator Trainer::Run::MakeEvaluator() {
  ReleaseStepMemory();  // it is wanted
  EvaluatorOptions options = {.objective = data_.objective,
                              .label_smoothing = config_.label_smoothing,
                              .products = config_.product_dtype(),
                              .prediction_step = parts_.prediction_step.run};
  if (options.prediction_step == nullptr) {
    options.prediction_step = [this](const models::Bundle& batch, const models::RunOptions& run) {
      return Forward(model_, parts_.step, batch, run);
    };
  }
  // A program's own loss counts nothing for the task's metrics.
  std::shared_ptr<const EvaluationMetrics>& metrics = options.objective.metrics;
  if (metrics != nullptr && metrics->reads() == EvaluationMetrics::Reads::kLossCounts &&
      parts_.step.loss_of_tokens.run == nullptr) {
    metrics = nullptr;
  }
  options.stops = Stops();
  if (engine_ != nullptr) {
    options.forward_is_collective = engine_->store().forward_is_collective();
  }
  return {model_, mesh_, std::move(options)};
}

// Whether who waits for the process asks it to stop; nullptr where it does not train.
std::function<bool()> Trainer::Run::Stops() const {
  if (signals_ == nullptr) return nullptr;
  return [this] { return Interruption() != 0; };
}

// Work that stops between batches, and of one process within them too, where the run is to stop;
// that is no failure.
Status Trainer::Run::Interruptible(const std::function<Status()>& work) {
  const bool alone = signals_ != nullptr && mesh_.world()->size() == 1;
  Status done;
  try {
    const ExecutionModeScope<&ExecutionContext::cancelled> cancels(
        alone ? signals_->flag() : ExecutionContext::Current().cancelled);
    done = work();
  } catch (const CancelledError&) {
    if (!alone || Interruption() == 0) throw;
    done = Failure(StatusCode::kCancelled, "cancelled");
  }
  if (done.code() != StatusCode::kCancelled) return done;
  interrupted_ = true;
  return OkStatus();
}

// What a reference model says of the data, once for all.
Status Trainer::Run::JudgeByReference() {
  if (judged_by_reference_ || data_.preferences.empty()) return OkStatus();
  TESSERA_RETURN_IF_ERROR(
      Interruptible([&] { return JudgePreferences(config_, data_, model_, mesh_, Stops()); }));
  judged_by_reference_ = !interrupted_;
  return OkStatus();
}

StatusOr<EvaluationResult> Trainer::Run::Evaluate(const BatchSource& batches) {
  TESSERA_RETURN_IF_ERROR(JudgeByReference());
  if (parts_.evaluate.run == nullptr) return MakeEvaluator().Run(batches);
  ReleaseStepMemory();
  return parts_.evaluate.run(batches);
}

StatusOr<EvaluationResult> Trainer::Run::Evaluate(const data::Dataset& dataset,
                                                  int64_t max_batches) {
  if (max_batches == 0) TESSERA_RETURN_IF_ERROR(CheckEnds(dataset));
  return Evaluate(BatchesOf(dataset, config_.batch_size, max_batches));
}

StatusOr<PredictionResult> Trainer::Run::Predict(const BatchSource& batches) {
  if (parts_.predict.run == nullptr) return MakeEvaluator().Predict(batches);
  ReleaseStepMemory();
  return parts_.predict.run(batches);
}

StatusOr<PredictionResult> Trainer::Run::Predict(const data::Dataset& dataset) {
  TESSERA_RETURN_IF_ERROR(CheckEnds(dataset));
  return Predict(BatchesOf(dataset, config_.batch_size));
}

StatusOr<PredictionResult> Trainer::Run::Predict() {
  if (parts_.test_batches.run == nullptr) {
    return InvalidArgument("there are no test batches (TrainerParts::test_batches)");
  }
  return Predict(parts_.test_batches.run());
}

bool Trainer::Run::validates() const {
  return data_.validation != nullptr || parts_.validation_batches.run != nullptr;
}

Status Trainer::Run::EvaluateAndLog() {
  if (!validates()) {
    return Agree(mesh_, InvalidArgument("a callback asks for an evaluation, and there is no "
                                        "validation data (val_data, val_fraction)"));
  }
  const ProfileSpan span("evaluation", "evaluation");
  const AutocastScope autocast(config_.product_dtype());
  // As many rows on every layout of the same step.
  const int64_t batches = config_.eval_batches * config_.accumulation_steps() * mesh_.data_ranks();
  EvaluationResult found;
  std::vector<std::string> samples;
  TESSERA_RETURN_IF_ERROR(Interruptible([&]() -> Status {
    TESSERA_ASSIGN_OR_RETURN(
        found, Evaluate(parts_.validation_batches.run != nullptr
                            ? parts_.validation_batches.run()
                            : BatchesOf(*data_.validation, config_.batch_size, batches)));
    if (data_.objective.samples == nullptr) return OkStatus();
    // Ranks that share a copy of the model write together; one of them shows it.
    if (GreatestOf(Interruption(), mesh_) != 0) return Failure(StatusCode::kCancelled, "stopped");
    samples = data_.objective.samples(model_);
    return OkStatus();
  }));
  if (interrupted_) return OkStatus();
  if (found.targets == 0) {
    log_.Warning(Concat("step ", state_.step,
                        ": the validation data have no target, and so no loss: there is no row"));
    return OkStatus();
  }
  state_.val_loss = found.loss;
  state_.val_metrics = found.metrics;
  if (!std::isfinite(found.loss) && config_.on_non_finite == "stop") {
    if (std::exchange(amends_, false) && state_.step != begun_at_) {
      TESSERA_RETURN_IF_ERROR(AfterSave(checkpoints_.Finish()));
      TESSERA_RETURN_IF_ERROR(checkpoints_.Withdraw());
    }
    return Stop(Concat("step ", state_.step, ": the validation loss is ",
                       std::isnan(found.loss) ? "nan" : Concat(found.loss)));
  }
  TESSERA_RETURN_IF_ERROR(report_->WriteEvaluation(state_, samples));
  TESSERA_RETURN_IF_ERROR(CheckJudgedMetric(*state_.val_metrics));
  Tell(&TrainerCallback::OnEvaluate);
  return OkStatus();
}

}  // namespace tessera::train
