// SPDX-License-Identifier: Apache-2.0
// Training without a run: forward, backward, step, save and load over a model, an optimizer and a
// mesh. It needs neither a configuration nor MPI; the trainer is on it (train/trainer.h).
//
//   const auto rule = optim::FindOptimizerKind("adamw").value()->Configure({}, "here");
//   Engine engine(*model, mesh, {.rule = *rule, .max_grad_norm = 1});
//   engine.Start();
//   for (uint64_t step = 1; step <= steps; ++step) {
//     const StepResult done = engine.Step({.batches = micro_batches, .targets = targets,
//                                          .learning_rate = 3e-4, .options = OptionsOf(step)});
//     // done.losses: of this rank's micro-batches, summed over targets; done.grad_norm
//   }
//   dist::SaveCheckpoint(path, step, engine.Tensors(), {}, *mesh.world());
//
// (`Configure` takes JSON: include <nlohmann/json.hpp>.)
//
// A step's loss is the sum over its targets, on all ranks, divided by their number. How its work is
// done is a part of the engine's that states what it can (train/engine/step_runner.h). Every rank
// makes the same calls. Whoever has the passes in hand takes a step in parts; with a configuration,
// and losses that are means, that is train/loop/configured_engine.h.
#ifndef TESSERA_TRAIN_ENGINE_ENGINE_H_
#define TESSERA_TRAIN_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/finite_watch.h"
#include "core/dtype.h"
#include "dist/activations/activation_store.h"
#include "dist/checkpoint/pieces.h"
#include "dist/mesh/mesh.h"
#include "dist/pipeline/schedule.h"
#include "dist/store/parameter_store.h"
#include "models/model.h"
#include "optim/grad_scaler.h"
#include "optim/update_rule.h"
#include "train/engine/step_parts.h"

namespace tessera::dist {
class Checkpoint;  // dist/checkpoint/checkpoint.h
}  // namespace tessera::dist

namespace tessera::train {

class PhaseClock;  // train/engine/phase_clock.h

struct EngineOptions {
  std::shared_ptr<const optim::UpdateRule> rule;  // the optimizer with its options
  double weight_decay = 0;                        // of matrices; vectors have none
  double max_grad_norm = 0;                       // 0: gradients are measured only
  std::optional<optim::GradScalerOptions> loss_scaling = std::nullopt;
  // Leaves out the update where gradients are not finite, as loss scaling does anyway.
  bool skip_non_finite = false;
  // Steps look for where numbers stop being finite (StepResult::bad_number).
  bool check_finite = false;
  DType products = DType::kFloat32;  // of float32 operands (autograd/autocast.h)
  dist::ZeroOptions store = {.stage = 0};
  // Where what is kept for the backward pass lies; nullopt: where it was computed.
  std::optional<dist::ActivationStoreOptions> activations = std::nullopt;
  dist::ScheduleKind schedule = dist::ScheduleKind::kOneForwardOneBackward;  // of a pipeline
  // Waits for the device where phases end, for the clock's sake.
  bool time_phases = false;
};

// Of one optimizer step on this rank.
struct EngineStep {
  const std::vector<models::Bundle>& batches;  // micro-batches, wherever they are
  // Of them, how many have samples of their own. The rest runs along, since ranks that share
  // parameters take as many passes, and adds nothing: its losses and counts are 0.
  int64_t filled = std::numeric_limits<int64_t>::max();
  double targets = 1;  // of the step, on all ranks
  // Not empty: what the loss of each micro-batch is divided by before, so that it is a mean.
  std::vector<double> divisors = {};
  double learning_rate = 0;
  uint64_t number = 1;  // from 1
  std::function<models::RunOptions(int64_t micro_batch)> options;
  // Of RunPasses: gets what the model gave of each micro-batch, off the tape; of a pipeline, on its
  // last stage. nullptr: not wanted.
  std::vector<models::Bundle>* outputs = nullptr;
};
// On meta there are no numbers: all of them are NaN.
struct StepResult {
  std::vector<double> losses;  // of this rank's micro-batches, summed over targets
  // What the loss counts of each of them (StepParts::loss_of_tokens); nothing where it does not.
  std::vector<std::vector<double>> counts = {};
  // The model's own losses by name, of each of them (models/auxiliary.h).
  std::vector<std::map<std::string, double>> auxiliaries = {};
  double grad_norm = 0;
  bool updated = true;  // false: left out, as the gradients are not finite
  // What was not finite first on this rank, where it is looked for.
  std::optional<BadNumber> bad_number = std::nullopt;
};

// What a step's backward passes leave.
struct StepGradients {
  // By the parameters' names, copied: a sum over micro-batches and ranks, as far as this rank holds
  // it, times the scale of the loss.
  std::vector<dist::CheckpointTensor> tensors;
  double norm = 0;  // StepResult::grad_norm
};

class Engine {
 public:
  // The model is on its device and in its dtype, and was built with the mesh's groups; it outlives
  // the engine. Collective.
  Engine(models::Model& model, const dist::Mesh& mesh, const EngineOptions& options,
         StepParts parts = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Parameters have their first values: those of rank 0 become every rank's. Collective.
  void Start();
  StepResult Step(const EngineStep& step);
  // Runs a step's passes again, and drops them: what is not finite first on this rank. Where all
  // that operations give is finite, the first parameter by name whose gradient is not (a sum over
  // micro-batches): BadNumber::Kind::kSum. nullopt: neither. A world of one rank stops at that
  // operation; several ranks wait for one another, and run all passes. Collective.
  // `tensors`, where it is not nullptr, gets the operation's (train/engine/bad_operation_watch.h),
  // or the parameter's gradient as `gradient.<name>`.
  std::optional<BadNumber> FindBadNumber(const EngineStep& step, Bundle* tensors = nullptr);
  // Runs a step's passes, and gives the gradients in place of the update. Where data-parallel ranks
  // share gradients out (ZeroOptions::replicates is false) there are no tensors. Collective.
  StepGradients Gradients(const EngineStep& step);

  // A step in parts: BeginStep, passes, FinishStep. Passes are those of micro-batch 0, 1, ..., each
  // forward and then backward, or all at once (RunPasses), as a pipeline has them; it throws Error
  // for single ones. A loss goes into the step with its `share`.
  void BeginStep(int64_t micro_batches, double learning_rate);
  models::Bundle RunForward(int64_t micro_batch, const models::Bundle& batch,
                            const models::RunOptions& options);
  void RunBackward(const Tensor& loss, double share);
  std::vector<double> RunPasses(const EngineStep& step);
  // No losses in the result.
  StepResult FinishStep();
  // Drops what there is of a step that was begun, after an exception too (but not of a pipeline,
  // whose messages may be on their way).
  void AbandonStep();

  // One forward pass, without a tape around it or with one, as the caller has it.
  models::Bundle Forward(const models::Bundle& batch, const models::RunOptions& options);

  // Weights, states of the optimizer and of loss scaling, as far as this rank holds them.
  std::vector<dist::CheckpointTensor> Tensors();
  // Makes place for what a checkpoint has of StepParts::forward_with_mems, before it is loaded;
  // refuses that of another number of data-parallel ranks.
  Status ExpectMems(const dist::Checkpoint& checkpoint);
  // After those were written. Collective.
  void Loaded();

  dist::ParameterStore& store();
  models::Model& model() { return model_; }
  // nullptr: losses are not scaled, or by 1.
  const optim::GradScaler* scaler() const;
  DType products() const;
  PhaseClock& phases();

  // From now on steps are captured as CUDA graphs where they can be (train/engine/captured_step.h);
  // otherwise `say` is given one line with the reason: the caller's, where it has one, or the
  // steps' own.
  void CaptureSteps(int64_t micro_batches, const char* why_not,
                    std::function<void(const std::string&)> say);
  // Gives back the memory that is held from step to step: a captured step's, which is captured anew
  // later.
  void ReleaseStepMemory();

 private:
  struct Parts;

  models::Model& model_;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_ENGINE_ENGINE_H_
