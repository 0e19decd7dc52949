// SPDX-License-Identifier: Apache-2.0
// How an optimizer step's work is done: as it is (PlainStep), replayed as a CUDA graph
// (CapturedStep), or by a pipeline's executor (PipelinedStep). The engine chooses once.
//
//   std::unique_ptr<StepRunner> runner = std::make_unique<PlainStep>(work);
//   const StepOutputs done = runner->Run({.batches = micro_batches, .shares = shares, ...});
#ifndef TESSERA_TRAIN_ENGINE_STEP_RUNNER_H_
#define TESSERA_TRAIN_ENGINE_STEP_RUNNER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/saved_tensor.h"
#include "core/communicator.h"
#include "core/dtype.h"
#include "core/tensor.h"
#include "dist/store/parameter_store.h"
#include "models/model.h"
#include "nn/running_statistics.h"
#include "optim/grad_scaler.h"
#include "train/engine/phase_clock.h"
#include "train/engine/step_parts.h"

namespace tessera::train {

// What a step is given, beside the parameters and the learning rate.
struct StepInputs {
  std::vector<models::Bundle> batches;  // this rank's micro-batches, wherever they are
  // What is to be made of each micro-batch's loss: float64, one for each, on the device. 0 where it
  // has no sample of its own (EngineStep::filled).
  Tensor shares;
  uint64_t number = 1;
  std::function<models::RunOptions(int64_t micro_batch)> options = nullptr;
  std::vector<models::Bundle>* outputs = nullptr;  // EngineStep's

  // 0-d.
  Tensor ShareOf(int64_t micro_batch) const { return shares.AsStrided({}, {}, micro_batch); }
};
// What the host reads afterwards: the loss of every micro-batch, 0-d and summed over its targets,
// the norm of the gradients, 0-d, what losses count (CountedLoss), of every micro-batch or
// nothing, and likewise the model's own losses by name (models/auxiliary.h).
struct StepOutputs {
  std::vector<Tensor> losses;
  Tensor grad_norm;
  std::vector<Tensor> counts = {};
  std::vector<std::map<std::string, Tensor>> auxiliaries = {};
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // From the batches to the updated parameters. The outputs hold until the next call.
  virtual StepOutputs Run(const StepInputs& inputs) = 0;
  // Of it the passes alone, of a step that the store has begun: the losses. Gradients are left
  // there.
  virtual std::vector<Tensor> RunPasses(const StepInputs& inputs) = 0;
  // Why steps of so many micro-batches cannot be captured once and replayed; nullptr when they can.
  virtual const char* WhyNotCaptured(int64_t micro_batches) const = 0;
  // Undoes what a Run that threw left behind.
  virtual void Undo() = 0;
  // Gives back the memory that is held from step to step.
  virtual void ReleaseMemory() {}
};

// Tells who watches this thread's numbers (autograd/tape_watcher.h) which pass begins.
void EnterPass(const models::RunOptions& options, bool backward, int64_t chunk = 0);

// What steps work with, whoever runs them.
struct StepWork {
  models::Model& model;
  const StepParts& parts;
  dist::ParameterStore& store;
  SavedTensorHooks* activations;  // nullptr: kept where they are
  optim::GradScaler* scaler;      // nullptr: losses are not scaled
  PhaseClock& clock;
  DType products;        // of float32 operands (autograd/autocast.h)
  double max_grad_norm;  // 0: gradients are measured only
  // Where forward passes leave what they find for evaluation; nullptr: this layout has no place.
  nn::RunningStatistics* statistics;
  std::shared_ptr<Communicator> data_parallel;  // the ranks that join these

  // What a micro-batch's summed loss adds to the step's mean, scaled as mixed precision asks.
  Tensor ShareOf(const Tensor& loss, const Tensor& share) const;
  void BeginGradients(int64_t micro_batches) const;
  // One micro-batch's passes.
  models::Bundle RunForward(const models::Bundle& batch, const models::RunOptions& options) const;
  void RunBackward(const Tensor& loss, const Tensor& share) const;
  // Measures the gradients, once they are whole, and says by what the update multiplies them.
  optim::ClipResult Clip() const;
  // Returns the norm of the gradients.
  Tensor UpdateParameters() const;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_ENGINE_STEP_RUNNER_H_
