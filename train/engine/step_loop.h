// SPDX-License-Identifier: Apache-2.0
// The loop over steps that the trainer, the engine of loops of one's own and the training library
// have in common: which pass comes next, what passes are told, what was counted.
//
//   StepLoop loop(&engine, {.micro_batches = 4, .seed = 1});
//   while (...) {
//     const models::Bundle out = loop.Forward(batch, learning_rate);  // of a micro-batch
//     loop.Backward(out.at(keys::kLoss));
//     if (const std::optional<StepResult> done = loop.EndMicroBatch()) loop.Count(*done);
//   }
//   loop.Count(loop.Step(batches, {.targets = 512, .learning_rate = 3e-4}));  // or a whole step
//
// A pass that throws abandons its step: parameters are as they were, and the next forward pass
// begins the step again. Where the update itself throws, parameters may be old or new: broken().
#ifndef TESSERA_TRAIN_ENGINE_STEP_LOOP_H_
#define TESSERA_TRAIN_ENGINE_STEP_LOOP_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "core/tensor.h"
#include "models/model.h"
#include "train/engine/engine.h"

namespace tessera::train {

// What the passes of all steps are told alike.
struct StepLoopOptions {
  int64_t micro_batches = 1;  // of a step, on this rank
  int64_t rank = 0;           // among those that share the batch out
  int64_t ranks = 1;
  uint64_t seed = 0;
  double label_smoothing = 0;
  double neftune_noise_alpha = 0;
  Tensor class_weights = {};
};

// How a whole step is run.
struct WholeStep {
  double targets = 1;                 // what losses are divided by, on all ranks
  std::vector<double> divisors = {};  // EngineStep::divisors
  // Of each micro-batch, models::RunOptions::loss_targets; empty: 0.
  std::vector<double> loss_targets = {};
  double learning_rate = 0;
  int64_t filled = std::numeric_limits<int64_t>::max();  // EngineStep::filled
  LossReduction reduction = LossReduction::kSum;
};

class StepLoop {
 public:
  // The engine outlives the loop.
  StepLoop(Engine* engine, const StepLoopOptions& options);

  // --- A micro-batch at a time. Each throws Error where another call comes first. ---
  models::Bundle Forward(const models::Bundle& batch, double learning_rate,
                         bool keep_logits = false);
  // The loss goes into the step with the share that all micro-batches of all ranks have.
  void Backward(const Tensor& loss);
  // After the step's last micro-batch it updates the parameters; nullopt: there are more.
  std::optional<StepResult> EndMicroBatch();
  // All passes of a step at once, of any number of micro-batches; EndMicroBatch is what follows.
  // Returns their losses; `outputs` gets what the model gave of each, where it is not nullptr.
  std::vector<double> RunPasses(const std::vector<models::Bundle>& batches, double learning_rate,
                                std::vector<models::Bundle>* outputs);
  // Drops the step that is under way.
  void Abandon();
  // Runs a pass; where it throws, the step is abandoned first.
  template <typename Pass>
  auto OrAbandon(const Pass& pass) {
    try {
      return pass();
    } catch (...) {
      Abandon();
      throw;
    }
  }

  // --- A step at a time. What it throws leaves the step to the caller. ---
  StepResult Step(const std::vector<models::Bundle>& batches, const WholeStep& step);
  // Engine::FindBadNumber of the step that was counted last, given what it was given.
  std::optional<BadNumber> FindBadNumber(const std::vector<models::Bundle>& batches,
                                         const WholeStep& step, Bundle* tensors = nullptr);
  // Engine::Gradients of the step that comes next. It is not counted.
  StepGradients Gradients(const std::vector<models::Bundle>& batches, const WholeStep& step);

  // --- What was done ---
  // A step is over, its update left out or not. `counts` false: it will be taken again.
  void Count(const StepResult& done, bool counts = true);
  void Restore(int64_t steps, int64_t skipped);
  int64_t steps() const { return steps_; }      // those left out included
  int64_t skipped() const { return skipped_; }  // updates that were left out
  bool applied() const { return applied_; }     // the last update was not
  double grad_norm() const { return grad_norm_; }

  // Whether an update, or what the caller says of a loading, was broken off.
  bool broken() const { return broken_; }
  void set_broken(bool value) { broken_ = value; }

  // --- Where the step under way is ---
  int64_t micro_batches() const { return micro_batches_; }
  bool at_last_micro_batch() const { return micro_batch_ + 1 == micro_batches_; }
  int64_t backward_passes() const { return micro_batch_ + (awaits_ == Awaits::kStep ? 1 : 0); }
  bool has_forward_pass() const { return awaits_ == Awaits::kBackward; }
  // Throws Error within a step; `what` is the call that has no place there.
  void CheckBetweenSteps(const char* what) const;

  // What a pass is told; of an evaluation nothing is random.
  models::RunOptions OptionsOf(int64_t micro_batch, bool training) const {
    return OptionsOf(micro_batch, training, steps_ + 1);
  }
  StepLoopOptions& options() { return options_; }

 private:
  models::RunOptions OptionsOf(int64_t micro_batch, bool training, int64_t number) const;
  EngineStep EngineStepOf(const std::vector<models::Bundle>& batches, const WholeStep& step,
                          int64_t number) const;
  enum class Awaits { kForward, kBackward, kStep };

  Engine& engine_;
  StepLoopOptions options_;
  Awaits awaits_ = Awaits::kForward;
  int64_t micro_batch_ = 0;  // of the step under way
  int64_t micro_batches_;    // likewise
  int64_t steps_ = 0;
  int64_t skipped_ = 0;
  bool applied_ = false;
  double grad_norm_ = 0;
  bool broken_ = false;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_ENGINE_STEP_LOOP_H_
