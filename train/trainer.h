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
// A model that behaves differently overrides `ForwardStep`; `MakeOptimizer`, `TrainBatch`,
// `Evaluate` and `Log` can be overridden likewise. Under a pipeline the stages' blocks are run by
// its executor, and `ForwardStep` serves evaluation alone. Callbacks read the state and may stop
// the run; they are called on every rank.
//
// In a parallel run every rank has a trainer, with the same configuration and its own mesh; all
// call the same methods. What only one rank does (metrics, progress) is done by the mesh's printing
// rank. A failure that all ranks know of is returned by all of them and marked (train/agreement.h).
#ifndef TESSERA_TRAIN_TRAINER_H_
#define TESSERA_TRAIN_TRAINER_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "data/dataset/dataset.h"
#include "data/dataset/sampler.h"
#include "data/tokenizer/tokenizer.h"
#include "dist/checkpoint/async_checkpointer.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/mesh/mesh.h"
#include "models/model.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "train/config/run_config.h"
#include "train/engine.h"
#include "train/metrics_log.h"
#include "train/progress.h"
#include "train/run_lock.h"
#include "train/run_log.h"
#include "train/step_report.h"
#include "train/stop_signal.h"
#include "train/task.h"

namespace tessera::train {

struct TrainState {
  int64_t step = 0;  // optimizer steps taken
  int64_t total_steps = 0;
  double epoch = 0;  // passes over the data so far
  double loss = 0;   // of the last step
  double grad_norm = 0;
  double lr = 0;
  std::optional<double> val_loss;  // of the last evaluation
  nlohmann::ordered_json val_metrics = nlohmann::ordered_json::object();
  bool should_stop = false;  // a callback may set it
};

// One that changes the model (its parameters that train, its hooks) calls
// Trainer::DropCapturedStep.
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
};

// What an evaluation found: the mean loss per target, and the task's metrics by name.
struct EvaluationResult {
  double loss = 0;
  nlohmann::ordered_json metrics = nlohmann::ordered_json::object();
};

struct TrainResult {
  TrainState state;
  // Why the run ended before its last step ("SIGTERM", "the time limit", "a callback"); empty
  // otherwise. A checkpoint has been saved then.
  std::string stopped_by;
};

class Trainer {
 public:
  using Dataset = std::shared_ptr<const data::Dataset>;

  // `data.train` and `data.validation` may be null where nothing is trained or evaluated. The model
  // is on its device and in its dtype, and was built with the mesh's tp group. Throws Error when
  // the mesh does not fit the configuration.
  Trainer(const RunConfig& config, models::Model& model, const TaskData& data,
          const dist::Mesh& mesh = {});
  virtual ~Trainer() = default;

  void AddCallback(TrainerCallback* callback) { callbacks_.push_back(callback); }

  StatusOr<TrainResult> Train(const TrainOptions& options = {});

  // The loss and the task's metrics over a dataset (all of it, or `max_batches` batches), shared
  // out over the data-parallel ranks and summed in the order of the batches.
  virtual StatusOr<EvaluationResult> Evaluate(const data::Dataset& dataset, int64_t max_batches);

  // The trained model as a Hugging Face folder, from the parts of all ranks; `tokenizer` may be
  // null. After Train.
  Status SaveModel(const std::string& folder, const data::Tokenizer* tokenizer);

  // Gives back the memory of a step that was captured as a CUDA graph, if one was; later steps are
  // captured anew, as the model is then.
  void DropCapturedStep();

  const TrainState& state() const { return state_; }
  models::Model& model() { return model_; }

 protected:
  // One forward pass; the result has `loss`, summed over targets.
  virtual models::Bundle ForwardStep(const models::Bundle& batch,
                                     const models::RunOptions& options);
  virtual std::unique_ptr<optim::Optimizer> MakeOptimizer(
      std::vector<optim::ParameterGroup> groups);
  // This rank's batch number `number`: of step number / micro-batches (counted from 0).
  virtual StatusOr<data::Batch> TrainBatch(int64_t number);
  virtual Status Log(const nlohmann::ordered_json& row);
  // Whether every step launches the same work, its batches apart: on a GPU it is then captured once
  // and replayed (train/captured_step.h). True unless the trainer is a derived one; those answer
  // for what they override.
  virtual bool StepsAreStatic() const;

 private:
  class Loader;
  struct StepBatches;
  Status Begin(const TrainOptions& options);
  Status Prepare();
  Status Resume(const TrainOptions& options);
  Status LoadFrom(const dist::Checkpoint& checkpoint);
  Status ReadTrainerState(const dist::Checkpoint& checkpoint);
  void WarnOfChanges(const nlohmann::json& saved) const;
  StepBatches FetchStep(Loader& loader);
  void RunStep(const StepBatches& step);
  models::RunOptions OptionsFor(int64_t micro_batch) const;
  void CaptureSteps();
  Status AfterStep();
  Status LogRow();
  Status EvaluateAndLog();
  models::RunOptions EvaluationOptions() const;
  StatusOr<std::vector<double>> EvaluateBatch(const data::Batch& batch);
  double WeightOf(const data::Batch& batch) const;
  Status Save();
  Status FinishSave();
  Status AfterSave();
  int64_t ReasonToStop() const;
  int64_t StepsToTake() const;
  int64_t global_batch() const { return sampler_.GlobalBatch(mesh_.dp()->size()); }

  const RunConfig config_;
  models::Model& model_;
  const dist::Mesh mesh_;
  const Dataset train_data_;
  const Dataset val_data_;
  const Objective objective_;
  const std::vector<std::pair<std::string, std::string>> files_;  // of the task, for model folders
  const data::Sampler sampler_;
  std::vector<TrainerCallback*> callbacks_;

  std::unique_ptr<Engine> engine_;  // of a run that trains
  std::optional<optim::Schedule> schedule_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<Progress> progress_;
  RunLog log_ = RunLog(nullptr, LogLevel::kError);
  const StopSignals* signals_ = nullptr;
  std::optional<RunLock> lock_;  // of rank 0, while it trains

  TrainState state_;
  // Since the last row of metrics; the first two are part of a checkpoint.
  double loss_sum_ = 0;
  int64_t loss_steps_ = 0;
  int64_t tokens_ = 0;
  double seconds_ = 0;
  int64_t saved_step_ = -1;  // of the newest checkpoint, written or on its way
  dist::AsyncCheckpointer saver_;
  int64_t begun_at_ = 0;  // the step this process began with
  std::chrono::steady_clock::time_point started_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TRAINER_H_
