// What becomes of a step's gradients: summed over ranks, measured, and taken by the optimizer.
//
//   updater->optimizer().set_learning_rate(lr);
//   updater->BeginStep(micro_batches);
//   for (int64_t m = 0; m < micro_batches; ++m) {
//     updater->BeginMicroBatch(0, m);
//     Backward(Loss(m));
//   }
//   updater->FinishGradients();
//   const optim::ClipResult clip = updater->Clip({.max_norm = 1});
//   updater->Step({.clip_factor = clip.factor});         // gradients are gone afterwards
//
// Every rank calls the same methods in the same order. Losses have been divided by the targets of
// the whole step, so gradients are summed, never averaged.
#ifndef TESSERA_TRAIN_UPDATE_UPDATER_H_
#define TESSERA_TRAIN_UPDATE_UPDATER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/status.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/mesh/mesh.h"
#include "models/model.h"
#include "optim/clip.h"
#include "optim/optimizer.h"
#include "train/config/run_config.h"

namespace tessera::train {

class Updater {
 public:
  virtual ~Updater() = default;

  virtual optim::Optimizer& optimizer() = 0;

  // Once all parameters have their first values, before a checkpoint is loaded and before the first
  // step: those of rank 0 become every rank's. Collective.
  virtual void Start() = 0;
  virtual void BeginStep(int64_t micro_batches) = 0;
  // Before gradients of micro-batch m = 0, 1, ... come to `chunk`: of a pipeline, which of this
  // rank's; else 0.
  virtual void BeginMicroBatch(int chunk, int64_t m) = 0;
  // Waits for the sums.
  virtual void FinishGradients() = 0;
  // The norm over all parameters of the model, whoever holds them. `reduce` and `counted` of the
  // options are the updater's own.
  virtual optim::ClipResult Clip(optim::ClipOptions options) = 0;
  // Updates the parameters, on every rank that holds them.
  virtual void Step(const optim::StepInputs& inputs) = 0;

  // Weights ("model.<name>") and states of the optimizer ("optimizer.<name>.<state>"), as far as
  // this rank holds them.
  virtual std::vector<dist::CheckpointTensor> Tensors() = 0;
  // After Tensors() were written from outside.
  virtual void Loaded() {}
  // This rank's whole part of a parameter that may be cut over the data-parallel ranks. Collective:
  // all of them ask for the same parameters in the same order.
  virtual Tensor Whole(nn::Parameter& parameter) { return parameter.tensor; }
};

// The parameters of a model, or of a pipeline's stage, as an optimizer takes them: those that
// train, tied ones with their leaves.
std::vector<optim::Parameter> OptimizedParameters(models::Model& model);

using OptimizerMaker =
    std::function<std::unique_ptr<optim::Optimizer>(std::vector<optim::ParameterGroup>)>;

// As the configuration asks (data parallelism, ZeRO). `model` outlives the updater.
std::unique_ptr<Updater> MakeUpdater(const RunConfig& config, models::Model& model,
                                     const dist::Mesh& mesh, const OptimizerMaker& make_optimizer);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_UPDATE_UPDATER_H_
