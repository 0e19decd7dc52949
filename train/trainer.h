// The training loop.
//
//   TESSERA_ASSIGN_OR_RETURN(RunSetup setup, PrepareRun(config));   // train/run_setup.h
//   Trainer trainer(setup.config, *setup.model, setup.data);
//   trainer.AddCallback(&early_stopping);
//   TESSERA_ASSIGN_OR_RETURN(TrainResult result, trainer.Train({.resume = true}));
//
// One optimizer step is `gradient_accumulation_steps` micro-batches on each data-parallel rank; its
// loss is the sum over all targets of the step, on all ranks, divided by their number, so
// accumulation, ranks, uneven batches and padding give what one large batch gives. Data order,
// dropout and learning rate are functions of the step, so that a resumed run is the uninterrupted
// one, bit for bit.
//
// The loop stands on an engine (train/engine.h), an Evaluator, a CheckpointKeeper and a RunReport.
// What a program wants otherwise it gives as parts (train/trainer_parts.h). Callbacks read the
// state and may stop the run; they are called on every rank.
//
// In a parallel run every rank has a trainer, with the same configuration and its own mesh; all
// call the same methods. What only one rank does (metrics, progress) is done by the mesh's printing
// rank. A failure that all ranks know of is returned by all of them and marked (train/agreement.h).
#ifndef TESSERA_TRAIN_TRAINER_H_
#define TESSERA_TRAIN_TRAINER_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "data/dataset/dataset.h"
#include "data/dataset/sampler.h"
#include "data/tokenizer/tokenizer.h"
#include "dist/mesh/mesh.h"
#include "models/model.h"
#include "train/checkpoint_keeper.h"
#include "train/config/run_config.h"
#include "train/engine.h"
#include "train/evaluator.h"
#include "train/resume_state.h"
#include "train/run_lock.h"
#include "train/run_log.h"
#include "train/run_report.h"
#include "train/step_report.h"
#include "train/stop_signal.h"
#include "train/task.h"
#include "train/train_state.h"
#include "train/trainer_parts.h"

namespace tessera::train {

// One that changes the model (its parameters that train, its hooks) calls
// Trainer::ReleaseStepMemory.
class TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;
  virtual void OnStep(TrainState&) {}
  virtual void OnEvaluate(TrainState&) {}
  virtual void OnSave(TrainState&, const std::string& /*checkpoint*/) {}
};

struct TrainOptions {
  // Continue from a checkpoint: the newest whole one in `out` (starting afresh where there is
  // none), or the named one.
  bool resume = false;
  std::string resume_from = {};
  // Where the run speaks, each rank at its level (train/run_log.h); nullptr: nowhere.
  std::FILE* output = stdout;
  std::string host = HostName();  // which machine this rank is on
};

struct TrainResult {
  TrainState state;
  // Why the run ended before its last step ("SIGTERM", "the time limit", "a callback"); empty
  // otherwise. A checkpoint has been saved then.
  std::string stopped_by;
};

class Trainer {
 public:
  // `data.train` and `data.validation` may be null where nothing is trained or evaluated. The model
  // is on its device and in its dtype, and was built with the mesh's tp group. Throws Error when
  // the mesh does not fit the configuration.
  Trainer(const RunConfig& config, models::Model& model, const TaskData& data,
          const dist::Mesh& mesh = {}, TrainerParts parts = {});

  void AddCallback(TrainerCallback* callback) { callbacks_.push_back(callback); }

  StatusOr<TrainResult> Train(const TrainOptions& options = {});

  // The loss and the task's metrics over batches, or over a dataset (all of it, or `max_batches`
  // batches); see train/evaluator.h.
  StatusOr<EvaluationResult> Evaluate(const BatchSource& batches);
  StatusOr<EvaluationResult> Evaluate(const data::Dataset& dataset, int64_t max_batches);

  // The trained model as a Hugging Face folder, from the parts of all ranks; `tokenizer` may be
  // null. After Train.
  Status SaveModel(const std::string& folder, const data::Tokenizer* tokenizer);

  // Gives back the memory of a step that was captured as a CUDA graph, if one was; later steps are
  // captured anew, as the model is then.
  void ReleaseStepMemory();

  const TrainState& state() const { return state_; }
  models::Model& model() { return model_; }

 private:
  class Loader;
  struct StepBatches;
  Status Begin(const TrainOptions& options);
  Status Prepare();
  Status MakeRoom() const;
  Status OpenReport(const ResumeState& resumed);
  StatusOr<ResumeState> Resume(const TrainOptions& options);
  ResumeState StateNow() const;
  StatusOr<data::Batch> TrainBatch(int64_t number) const;
  StepBatches FetchStep(Loader& loader);
  StepResult RunStep(const StepBatches& step);
  Status CheckStep(const StepResult& done);
  Status CheckWeights();
  Status NotFinite(const std::string& what);
  models::RunOptions OptionsFor(int64_t micro_batch) const;
  Status AfterStep();
  Status LogSteps();
  Status EvaluateAndLog();
  bool validates() const;
  bool EndsEpoch() const;
  Status Save();
  Status FinalSave();
  Status AfterSave(const CheckpointKeeper::Appeared& appeared);
  int64_t ReasonToStop() const;
  int64_t StepsToTake() const;
  int64_t global_batch() const { return sampler_.GlobalBatch(mesh_.dp()->size()); }

  const RunConfig config_;
  models::Model& model_;
  const dist::Mesh mesh_;
  const TaskData data_;
  const TrainerParts parts_;
  const data::Sampler sampler_;
  std::vector<TrainerCallback*> callbacks_;

  // Of a run that trains.
  std::unique_ptr<Engine> engine_;
  CheckpointKeeper checkpoints_;
  std::unique_ptr<RunReport> report_;
  std::function<double(int64_t step, int64_t total_steps)> learning_rate_;
  RunLog log_ = RunLog(nullptr, LogLevel::kError);
  const StopSignals* signals_ = nullptr;
  std::optional<RunLock> lock_;  // of rank 0, while it trains

  TrainState state_;
  bool finite_ = true;    // the last step's loss and gradients
  int64_t begun_at_ = 0;  // the step this process began with
  std::chrono::steady_clock::time_point started_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TRAINER_H_
