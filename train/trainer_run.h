// SPDX-License-Identifier: Apache-2.0
// What a trainer does and knows (train/trainer.h). Its parts are in train/trainer_*.cc, each with a
// subject of its own.
#ifndef TESSERA_TRAIN_TRAINER_RUN_H_
#define TESSERA_TRAIN_TRAINER_RUN_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset/sampler.h"
#include "dist/checkpoint/memory_checkpoints.h"
#include "nlohmann/json_fwd.hpp"
#include "train/callbacks/best_model.h"
#include "train/engine/engine.h"
#include "train/engine/step_loop.h"
#include "train/ranks/stop_signal.h"
#include "train/report/run_report.h"
#include "train/report/step_report.h"
#include "train/run/bad_step.h"
#include "train/run/checkpoint_keeper.h"
#include "train/run/resume_state.h"
#include "train/run/run_lock.h"
#include "train/trace/digest_trace.h"
#include "train/trace/traced_tensor.h"
#include "train/trainer.h"

namespace tessera::train {

class Trainer::Run {
 public:
  Run(const RunConfig& config, models::Model& model, const TaskData& data, const dist::Mesh& mesh,
      TrainerParts parts);

  // As the trainer's.
  void AddCallback(TrainerCallback* callback) { callbacks_.push_back(callback); }
  StatusOr<TrainResult> Train(const TrainOptions& options);
  Status Rehearse(const std::function<void(RunPhase phase)>& ended);
  std::vector<dist::CheckpointTensor> CheckpointTensors() { return engine_->Tensors(); }
  double steps_per_epoch() const { return sampler_.StepsPerEpoch(mesh_.data_ranks()); }
  StatusOr<std::optional<BadStep>> Replay(int64_t step, models::Bundle* tensors);
  StatusOr<std::vector<TensorPart>> Retake(const TracedTensor& wanted);
  StatusOr<EvaluationResult> Evaluate(const BatchSource& batches);
  StatusOr<EvaluationResult> Evaluate(const data::Dataset& dataset, int64_t max_batches);
  StatusOr<PredictionResult> Predict(const BatchSource& batches);
  StatusOr<PredictionResult> Predict(const data::Dataset& dataset);
  StatusOr<PredictionResult> Predict();
  Status SaveModel(const std::string& folder, const data::Tokenizer* tokenizer);
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
  RankProgress progress_;                       // what the launcher of an elastic run reads
  int64_t begun_at_ = 0;                        // the step this process began with
  std::chrono::steady_clock::time_point started_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TRAINER_RUN_H_
