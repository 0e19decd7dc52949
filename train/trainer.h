// SPDX-License-Identifier: Apache-2.0
// The training loop.
//
//   TESSERA_ASSIGN_OR_RETURN(RunSetup setup, PrepareRun(config));   // train/run/run_setup.h
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
// The loop is on an engine (train/engine/engine.h), an Evaluator, a CheckpointKeeper and a
// RunReport. What a program wants otherwise it gives as parts (train/trainer_parts.h). Callbacks
// read the state and may ask for something (train/callbacks/trainer_callback.h).
//
// In a parallel run every rank has a trainer, with the same configuration and its own mesh; all
// call the same methods. What only one rank does (metrics, progress) is done by the mesh's printing
// rank. A failure that all ranks know of is returned by all of them and marked
// (train/ranks/agreement.h).
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

#include "base/status.h"
#include "data/dataset/dataset.h"
#include "data/dataset/sampler.h"
#include "data/tokenizer/tokenizer.h"
#include "dist/checkpoint/memory_checkpoints.h"
#include "dist/mesh/mesh.h"
#include "models/model.h"
#include "train/callbacks/best_model.h"
#include "train/callbacks/trainer_callback.h"
#include "train/config/run_config.h"
#include "train/engine/engine.h"
#include "train/engine/step_loop.h"
#include "train/evaluator.h"
#include "train/ranks/stop_signal.h"
#include "train/report/run_log.h"
#include "train/report/run_report.h"
#include "train/report/step_report.h"
#include "train/run/bad_step.h"
#include "train/run/checkpoint_keeper.h"
#include "train/run/elastic_run.h"
#include "train/run/resume_state.h"
#include "train/run/run_lock.h"
#include "train/task.h"
#include "train/trace/digest_trace.h"
#include "train/trace/traced_tensor.h"
#include "train/train_state.h"
#include "train/trainer_parts.h"

namespace tessera::train {

struct TrainOptions {
  // Continue from a checkpoint: the newest whole one in `out` (starting afresh where there is
  // none), or the named one.
  bool resume = false;
  std::string resume_from = {};
  // Of a run whose ranks come and go. One that started before continues from its own newest
  // checkpoint, in memory or on the disk, if it has one.
  std::optional<ElasticRun> elastic = {};
  // Where the run speaks, each rank at its level (train/report/run_log.h); nullptr: nowhere.
  std::FILE* output = stdout;
  std::string host = HostName();  // which machine this rank is on
  // Shows the texts of samples where a run stops for their sake; nullptr: they have numbers alone.
  const data::Tokenizer* tokenizer = nullptr;
};

struct TrainResult {
  TrainState state;
  // What interrupted the run before its last step ("SIGTERM", "the time limit"); empty otherwise. A
  // checkpoint has been saved then, from which it continues.
  std::string stopped_by;
  // Why a callback ended it; empty where none did. Then it is over.
  std::string ended_by;
  // The checkpoint whose weights the model has at the end, where that is not the last step's
  // (load_best_model_at_end).
  std::string best_model;
};

// The parts of a run, each with what it needs at most; kData: the batches of the next step are
// made.
enum class RunPhase { kStart, kData, kFirstStep, kStep, kEvaluation, kSave };

class Trainer {
 public:
  // `data.train` and `data.validation` may be null where nothing is trained or evaluated. The model
  // is on its device and in its dtype, and was built with the mesh's tp group. Throws Error when
  // the mesh does not fit the configuration.
  Trainer(const RunConfig& config, models::Model& model, const TaskData& data,
          const dist::Mesh& mesh = {}, TrainerParts parts = {});

  // Before Train; it outlives that.
  void AddCallback(TrainerCallback* callback) { callbacks_.push_back(callback); }

  StatusOr<TrainResult> Train(const TrainOptions& options = {});

  // What a run asks of memory and of other ranks, of a model on meta (train/plan/plan.h): the
  // engine, two steps with the data's largest batches, an evaluation, and saving. There are no
  // numbers, and nothing is written. `ended` is called at the end of each phase.
  Status Rehearse(const std::function<void(RunPhase phase)>& ended);
  // What a checkpoint would hold. After Rehearse.
  std::vector<dist::CheckpointTensor> CheckpointTensors() { return engine_->Tensors(); }
  double steps_per_epoch() const { return sampler_.StepsPerEpoch(mesh_.data_ranks()); }

  // Takes the step again that ended a run (train/run/bad_step.h), from `<out>/bad_step`, up to the
  // operation that gives the first number that is not finite; nothing is updated or written. `step`
  // is the run's, from 1. nullopt: everything is finite. On any layout; several ranks run the
  // passes to their end (Engine::FindBadNumber). `tensors`, where it is not nullptr, gets the
  // operation's tensors on the rank that has them.
  StatusOr<std::optional<BadStep>> Replay(int64_t step, models::Bundle* tensors = nullptr);

  // Takes the steps of a run that traced digests again, up to `wanted.step`, and gives what this
  // rank holds of the tensors that `wanted` names; see Retake (train/trace/traced_tensor.h).
  // Nothing is written.
  StatusOr<std::vector<TensorPart>> Retake(const TracedTensor& wanted);

  // The loss and the task's metrics over batches, or over a dataset (all of it, or `max_batches`
  // batches); see train/evaluator.h.
  StatusOr<EvaluationResult> Evaluate(const BatchSource& batches);
  StatusOr<EvaluationResult> Evaluate(const data::Dataset& dataset, int64_t max_batches);

  // What the model says of every row of batches, of a dataset, or of the program's test batches
  // (TrainerParts::test_batches), with the loss and the metrics where they have labels. The task
  // must predict (TaskKind::predicts).
  StatusOr<PredictionResult> Predict(const BatchSource& batches);
  StatusOr<PredictionResult> Predict(const data::Dataset& dataset);
  StatusOr<PredictionResult> Predict();

  // The trained model as a Hugging Face folder, from the parts of all ranks; `tokenizer` may be
  // null. After Train.
  Status SaveModel(const std::string& folder, const data::Tokenizer* tokenizer);

  // Gives back the memory of a step that was captured as a CUDA graph, if one was; later steps are
  // captured anew, as the model is then.
  void ReleaseStepMemory();

  const TrainState& state() const { return state_; }
  models::Model& model() { return model_; }

 private:
  // Micro-batches that the loader has ready.
  static constexpr int64_t kBatchesAhead = 4;
  class Loader;
  // One step's micro-batches, and what all ranks told of theirs.
  struct StepBatches {
    Status status;
    std::vector<data::Batch> batches;
    // What the loss of each is divided by before: its targets, where losses are means of
    // micro-batches, which `all` then counts as targets. Otherwise empty.
    std::vector<double> divisors;
    std::vector<double> targets;  // of each
    StepReport all;
  };
  Status Begin(const TrainOptions& options);
  Status Prepare();
  Status PrepareSteps();
  Status MakeEngine();
  Status PlanSteps(const data::DataPosition& begin, int64_t length_group);
  Status MakeRoom() const;
  Status TraceStep(const StepBatches& step);
  Status OpenReport(const ResumeState& resumed);
  StatusOr<std::optional<dist::Checkpoint>> CheckpointToResume(const TrainOptions& options);
  int64_t NewestOnDisk() const;
  StatusOr<ResumeState> Resume(const TrainOptions& options);
  Status LoadFrom(const dist::Checkpoint& checkpoint);
  Status TakeAgainFrom(const dist::Checkpoint& checkpoint);
  Status TakeAgainBefore(int64_t step);
  ResumeState StateNow() const;
  StatusOr<data::Batch> TrainBatch(int64_t number) const;
  using NextBatch = std::function<StatusOr<data::Batch>()>;
  StepBatches FetchStep(const NextBatch& next);
  NextBatch NextBatches() const;  // from the step that comes next on, without a loader
  // What the loop is given of it.
  std::vector<models::Bundle> BundlesOf(const StepBatches& step) const;
  WholeStep WholeStepOf(const StepBatches& step) const;
  StatusOr<int64_t> LargestStep() const;
  StatusOr<data::Batch> LargestBatch(const data::BatchPlace& place) const;
  std::vector<models::Bundle> BatchesAhead(const data::Batch& batch) const;
  Status RehearseStep(int64_t like, const std::function<void(RunPhase phase)>& ended,
                      const std::function<Status()>& then);
  Status RehearseEvaluation();
  Status RehearseSave();
  StepResult RunStep(const StepBatches& step);
  std::optional<BadStep> FirstBadStep(const std::optional<BadNumber>& mine) const;
  std::vector<BadSample> SamplesOf(int64_t micro_batch) const;
  void WarnOfSamples(const std::vector<BadSample>& samples) const;
  Status CheckSpike(const StepBatches& step, const StepResult& done);
  Status TellBadStep(const std::string& what, const BadStep& bad);
  Status SaveBadStep() const;
  void ReadPosition();
  std::vector<double> CountsOfStep(const StepResult& done) const;
  Status JudgeByReference();
  Status CheckStep(const StepBatches& step, const StepResult& done);
  Status CheckLossScale(const StepBatches& step, bool overflow);
  void WarnOfStepsInVain() const;
  Status CheckWeights();
  // Ends the run.
  Status Stop(const std::string& what);
  std::string SoundCheckpoint() const;
  Status StepNotFinite(const std::string& what, const StepBatches& step,
                       std::optional<BadStep> bad = std::nullopt);
  Status MakeCallbacks();
  Status CheckJudgedMetric(const nlohmann::ordered_json& metrics) const;
  Status RestoreCallbacks(const ResumeState& saved);
  Status FindBest();
  nlohmann::json CallbackStates() const;
  // An event, to all callbacks.
  template <typename... Parameters, typename... Arguments>
  void Tell(void (TrainerCallback::*event)(const TrainState&, Parameters...),
            const Arguments&... arguments) {
    for (TrainerCallback* callback : called_) (callback->*event)(state_, arguments..., control_);
  }
  TrainControl Asked();
  Status AfterStep();
  Status AfterElasticStep();
  Status FinishAfterStep(TrainControl due);
  Status LogSteps();
  Status EndEpoch();
  int64_t PeakBytes() const;
  Status EvaluateAndLog();
  std::function<bool()> Stops() const;
  Status Interruptible(const std::function<Status()>& work);
  Evaluator MakeEvaluator();
  bool validates() const;
  CheckpointKeeper::Appeared SaveNow();
  Status FinalSave();
  StatusOr<std::string> RestoreBest();
  Status AfterSave(const CheckpointKeeper::Appeared& appeared);
  int64_t Interruption() const;
  int64_t ReasonToStop() const;
  Status CheckEpochs() const;
  bool EndsEpoch(int64_t step) const { return sampler_.EndsEpoch(step, mesh_.data_ranks()); }
  int64_t samples_per_step() const { return sampler_.StepSamples(mesh_.data_ranks()); }
  int64_t samples_per_epoch() const { return sampler_.samples_per_epoch(); }

  const RunConfig config_;
  models::Model& model_;
  const dist::Mesh mesh_;
  const TaskData data_;
  const bool averages_micro_batches_;  // RunConfig::loss_average
  const TrainerParts parts_;
  data::Sampler sampler_;
  std::vector<TrainerCallback*> callbacks_;  // the program's

  // Of a run that trains.
  std::unique_ptr<Engine> engine_;
  std::optional<StepLoop> loop_;  // over the engine
  CheckpointKeeper checkpoints_;
  std::optional<ElasticRun> elastic_;
  std::optional<dist::MemoryCheckpoints> memory_;  // of an elastic run, until one cannot be saved
  std::unique_ptr<RunReport> report_;
  std::unique_ptr<DigestTrace> trace_;  // nullptr: none is asked for
  std::function<double(int64_t step, int64_t total_steps)> learning_rate_;
  RunLog log_ = RunLog(nullptr, LogLevel::kError);
  const StopSignals* signals_ = nullptr;
  std::optional<RunLock> lock_;  // of rank 0, while it trains

  // What the configuration asks for, and then the program's.
  std::vector<std::unique_ptr<TrainerCallback>> own_callbacks_;
  std::vector<TrainerCallback*> called_;
  std::optional<JudgedMetric> judged_;  // where one of the own judges evaluations
  BestModel* best_ = nullptr;           // among the own
  bool ranks_ask_ = false;              // whether any rank has callbacks of the program's
  TrainControl control_;                // what has been asked for and not been done

  TrainState state_;
  bool judged_by_reference_ = false;
  std::string data_digest_;      // rank 0's
  bool evaluation_due_ = false;  // of the last step: checkpoints say so
  bool epoch_end_due_ = false;
  bool amends_ = false;                         // the newest checkpoint says that something is due
  bool interrupted_ = false;                    // an evaluation or the reference pass, on all ranks
  int64_t skipped_in_a_row_ = 0;                // updates, at a scale that cannot fall
  int64_t skipped_here_ = 0;                    // updates, by this process
  int64_t steps_without_targets_ = 0;           // of this process
  bool finite_ = true;                          // the last step's loss and gradients
  int64_t sound_step_ = -1;                     // the weights after it have given finite numbers
  const data::Tokenizer* tokenizer_ = nullptr;  // TrainOptions::tokenizer
  double waited_ = 0;                           // dist::SecondsWaited() at the step before
  RankProgress progress_;                       // what an elastic run's launcher is told
  int64_t begun_at_ = 0;                        // the step this process began with
  std::chrono::steady_clock::time_point started_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TRAINER_H_
