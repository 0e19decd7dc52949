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

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "dist/mesh/mesh.h"
#include "models/model.h"
#include "train/callbacks/trainer_callback.h"
#include "train/config/run_config.h"
#include "train/evaluator.h"
#include "train/report/run_log.h"
#include "train/run/elastic_run.h"
#include "train/task.h"
#include "train/train_state.h"
#include "train/trainer_parts.h"

namespace tessera::dist {
struct CheckpointTensor;  // dist/checkpoint/pieces.h
}  // namespace tessera::dist

namespace tessera::train {

struct BadStep;     // train/run/bad_step.h
struct TensorPart;  // train/trace/traced_tensor.h
struct TracedTensor;

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
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Before Train; it outlives that.
  void AddCallback(TrainerCallback* callback);

  StatusOr<TrainResult> Train(const TrainOptions& options = {});

  // What a run asks of memory and of other ranks, of a model on meta (train/plan/plan.h): the
  // engine, two steps with the data's largest batches, an evaluation, and saving. There are no
  // numbers, and nothing is written. `ended` is called at the end of each phase.
  Status Rehearse(const std::function<void(RunPhase phase)>& ended);
  // What a checkpoint would hold. After Rehearse.
  std::vector<dist::CheckpointTensor> CheckpointTensors();
  double steps_per_epoch() const;

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

  const TrainState& state() const;
  models::Model& model();

 private:
  class Run;  // train/trainer_run.h
  const std::unique_ptr<Run> run_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TRAINER_H_
