// SPDX-License-Identifier: Apache-2.0
// A training loop of one's own over an engine that a configuration describes, as DeepSpeed's users
// know it. train::Initialize makes one (train/loop/initialize.h).
//
//   TESSERA_ASSIGN_OR_RETURN(auto engine,
//                            Initialize("gpt2", RunSources{.deepspeed = "ds_config.json"}));
//   auto loader = engine->MakeLoader(*dataset);
//   while (engine->global_steps() < steps) {
//     TESSERA_ASSIGN_OR_RETURN(const data::Batch batch, loader->Next());
//     const Tensor loss = (*engine)(batch.tensors);
//     engine->Backward(loss);
//     engine->Step();                       // updates after the last micro-batch of a step
//   }
//   TESSERA_RETURN_IF_ERROR(engine->SaveCheckpoint("out", "", {{"epoch", 2}}));
//
// What a loss counts for. `engine(batch)` gives the mean over the micro-batch's targets, and
// `Backward` adds its gradients divided by the number of micro-batches of a step on all
// data-parallel ranks, as DeepSpeed does: micro-batches count alike, whatever they hold.
// `TrainBatch` divides the sum of all losses of the step by all of its targets, as the trainer
// does: targets count alike. Where all micro-batches have as many targets, both are the same, and
// the same bits where the numbers of micro-batches and of data-parallel ranks are powers of two.
//
// Step n (from 1) has the learning rate of the configuration's schedule at n, less the steps before
// it that were left out for an overflow (which count as steps otherwise), and dropout a key of n
// and the micro-batch's number among all ranks': nothing else is a state beside weights, optimizer
// and loss scale, so that a checkpoint continues bit for bit, on other layouts too as far as their
// sums allow (docs/distributed.md).
//
// Calls out of order throw Error and change nothing. A pass that throws takes the engine back to
// the beginning of its step: gradients of earlier micro-batches are dropped, parameters are as they
// were. (Among several ranks, all of them must fail alike, or the job ends; under a pipeline a
// failed pass ends it.) Every rank makes the same calls; with ZeRO 3, as many forward passes.
#ifndef TESSERA_TRAIN_LOOP_CONFIGURED_ENGINE_H_
#define TESSERA_TRAIN_LOOP_CONFIGURED_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json_member.h"
#include "base/status.h"
#include "core/tensor.h"
#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/mesh/mesh.h"
#include "models/model.h"
#include "nlohmann/json_fwd.hpp"
#include "train/config/run_config.h"
#include "train/engine/engine.h"
#include "train/engine/step_loop.h"
#include "train/loop/batch_loader.h"
#include "train/report/run_log.h"

namespace tessera::train {

// The loss of a micro-batch, a mean: 0-d, on the tape, from what the model gave and was given.
using Criterion = std::function<Tensor(const models::Bundle& outputs, const models::Bundle& batch)>;
using NextBatch = std::function<StatusOr<data::Batch>()>;

// What Initialize hands over.
struct ConfiguredEngineSetup {
  RunConfig config;
  dist::Mesh mesh;
  std::unique_ptr<models::Model> owned;  // nullptr: the caller's
  models::Model* model = nullptr;
  EngineOptions options = {};
  // In place of the model's own loss, in all passes. A TrainBatch then counts micro-batches alike,
  // too.
  Criterion criterion = nullptr;
  std::function<double(int64_t step)> learning_rate;  // of step 1, 2, ...
  std::vector<std::string> warnings = {};
};

// What LoadCheckpoint found.
struct LoadedCheckpoint {
  std::string path;  // "": none was found, and nothing has changed
  JsonMember client_state = JsonMember::Object();
  std::vector<std::string> passed_over = {};  // newer ones that are damaged, a line each; on rank 0
};

// The engine that Initialize gives: DeepSpeed's, by its methods.
class ConfiguredEngine {
 public:
  // The model is built for the mesh, and on its device. Collective.
  explicit ConfiguredEngine(ConfiguredEngineSetup setup);
  ConfiguredEngine(const ConfiguredEngine&) = delete;
  ConfiguredEngine& operator=(const ConfiguredEngine&) = delete;

  // --- A micro-batch at a time -------------------------------------------------------------------
  // The mean loss, on the tape. Without a tape (NoGrad) an evaluation, as EvalBatch, at any time.
  // Throws Error before the last one's Backward and Step, and under a pipeline.
  Tensor operator()(const models::Bundle& batch);
  // The same, with all that the model returns (`loss`, where the batch has targets, and `logits`).
  models::Bundle Forward(const models::Bundle& batch);
  // Any 0-d loss made of what the forward pass gave.
  void Backward(const Tensor& loss) { loop_->Backward(loss); }
  // After the step's last micro-batch updates the parameters; before, continues to the next one.
  // Throws Error where the gradients are not finite and nothing deals with that (loss scaling, or
  // `on_non_finite` skip or continue); parameters are then as they were.
  void Step();
  // Whether the micro-batch under way is the last of its step.
  bool IsGradientAccumulationBoundary() const { return loop_->at_last_micro_batch(); }
  // How many of the step's micro-batches have had their backward passes, and how many there are.
  int64_t backward_passes() const { return loop_->backward_passes(); }
  int64_t micro_batches() const { return loop_->micro_batches(); }
  // Whether a forward pass waits for its Backward.
  bool has_forward_pass() const { return loop_->has_forward_pass(); }
  int64_t gradient_accumulation_steps() const { return config_.accumulation_steps(); }
  // Drops the step that is under way: its forward pass, and its gradients so far.
  void AbandonStep() { loop_->Abandon(); }

  // --- A step at a time --------------------------------------------------------------------------
  // Takes `gradient_accumulation_steps` micro-batches, each with its number of targets, through
  // forward and backward passes and updates the parameters; under a pipeline the one way to train.
  // Returns the loss of the step over all ranks. A batch that cannot be had on one rank fails on
  // all of them.
  StatusOr<double> TrainBatch(const NextBatch& next);
  // All passes of a step, of any number of micro-batches that count alike; Step() is what follows.
  // Returns their losses on this rank. `outputs`: what the model gave of each; of a pipeline, on
  // its last stage.
  std::vector<double> RunPasses(const std::vector<models::Bundle>& batches,
                                std::vector<models::Bundle>* outputs = nullptr);
  // One forward pass without dropout and tape: mean loss and logits; of a pipeline on all stages.
  models::Bundle EvalBatch(const models::Bundle& batch);

  // This rank's batches of a dataset from here on, as the configuration says (`batch_size`,
  // `shuffle`, `data_seed`). Make it after LoadCheckpoint.
  std::unique_ptr<BatchLoader> MakeLoader(const data::Dataset& dataset) const;

  // --- Reports -----------------------------------------------------------------------------------
  int64_t global_steps() const { return loop_->steps(); }  // those left out included
  int64_t skipped_steps() const { return loop_->skipped(); }
  // Samples that the loaders of this run, and of those whose checkpoints it loaded, drew so far.
  int64_t samples() const;
  bool was_step_applied() const { return loop_->applied(); }  // the last one
  double grad_norm() const { return loop_->grad_norm(); }     // of the last step, before clipping
  // Of the next step: the schedule waits where an update is left out, as DeepSpeed's does.
  double learning_rate() const { return learning_rate_(global_steps() + 1 - skipped_steps()); }
  double loss_scale() const;  // 1 without loss scaling

  // --- Checkpoints (dist/checkpoint) -------------------------------------------------------------
  // `<directory>/checkpoint-<global_steps>`, or `<directory>/<tag>`. Between steps only.
  Status SaveCheckpoint(const std::string& directory, const std::string& tag = "",
                        const JsonMember& client_state = JsonMember::Object());
  // Without a tag the newest that verifies of those that were saved without one. After a failure
  // parameters may be old or new.
  StatusOr<LoadedCheckpoint> LoadCheckpoint(const std::string& directory,
                                            const std::string& tag = "");
  // The weights of all ranks as a Hugging Face folder; `tokenizer` may be null.
  Status SaveModel(const std::string& folder, const data::Tokenizer* tokenizer = nullptr);
  // Into the model as it is; where parameters are cut, all of them are whole for that moment.
  // Half-precision weights become the optimizer's, too, until LoadOptimizer.
  Status LoadModel(const std::string& folder);
  // What a model's folder lacks of a checkpoint: the optimizer's states, the loss scale, and the
  // number of steps. After LoadModel.
  Status SaveOptimizer(const std::string& directory);
  Status LoadOptimizer(const std::string& directory);

  models::Model& model() { return *model_; }
  const dist::Mesh& mesh() const { return mesh_; }
  const RunConfig& config() const { return config_; }
  train::Engine& engine() { return *engine_; }
  // What the configuration says that means nothing here, a line each.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  models::Bundle TrainingPass(const models::Bundle& batch, bool keep_logits);
  std::vector<dist::CheckpointTensor> States();
  Status Save(const std::string& path, const std::vector<dist::CheckpointTensor>& tensors,
              const nlohmann::json& client_state);
  Status Load(const dist::Checkpoint& checkpoint,
              const std::vector<dist::CheckpointTensor>& tensors);
  int64_t samples_per_step() const;
  Status Finish(const StepResult& done);

  const RunConfig config_;
  const dist::Mesh mesh_;
  const std::unique_ptr<models::Model> owned_;
  models::Model* const model_;
  const Criterion criterion_;
  const std::function<double(int64_t)> learning_rate_;
  const std::vector<std::string> warnings_;
  std::unique_ptr<train::Engine> engine_;

  std::optional<StepLoop> loop_;  // over the engine
  int64_t loaded_step_ = 0;       // of the checkpoint that the run continues
  int64_t loaded_samples_ = 0;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_LOOP_CONFIGURED_ENGINE_H_
