// SPDX-License-Identifier: Apache-2.0
// The parts of an optimizer step that a program may replace.
//
//   StepParts parts;
//   parts.loss = {.run = [](const models::Bundle& outputs, const models::Bundle& batch) {
//                   return CrossEntropy(outputs.at(keys::kLogits), batch.at(keys::kLabels),
//                                       {.reduction = LossReduction::kSum});
//                 },
//                 .capturable = true};
//   Engine engine(*model, mesh, options, parts);
//
// On a GPU a step may be captured once and replayed (train/engine/captured_step.h), which only work
// that is the same every time allows: every part says whether its own is.
#ifndef TESSERA_TRAIN_ENGINE_STEP_PARTS_H_
#define TESSERA_TRAIN_ENGINE_STEP_PARTS_H_

#include <functional>
#include <memory>
#include <vector>

#include "core/tensor.h"
#include "models/model.h"
#include "optim/optimizer.h"
#include "optim/parameter.h"

namespace tessera::keys {

inline constexpr TensorKey kLossCounts{"loss_counts", KeyElements::kFloating, "[counts]",
                                       "sums that a loss takes of a batch beside itself"};

}  // namespace tessera::keys

namespace tessera::train {

// The loss of a micro-batch, 0-d and on the tape, and what is counted beside it: [counts] float64,
// off the tape, added up over micro-batches and data-parallel ranks; undefined: nothing.
struct CountedLoss {
  Tensor loss;
  Tensor counts = {};
};

// A part of a step's work on the device.
template <typename Function>
struct StepPart {
  std::function<Function> run = nullptr;  // nullptr: the engine's own
  // Whether it launches the same work whenever its inputs have the same shapes, and reads nothing
  // from the device. Steps with a part that does not say so run as they are.
  bool capturable = false;
};

// A part that runs beside that work: steps stay capturable whatever it does.
template <typename Function>
struct HostPart {
  std::function<Function> run = nullptr;  // nullptr: the trainer's own
  static constexpr bool capturable = true;
};

struct StepParts {
  // One forward pass of a batch on the model's device; the result has `loss`, summed over targets,
  // unless the part below makes it. Throws Error under a pipeline, which runs blocks.
  StepPart<models::Bundle(const models::Bundle& batch, const models::RunOptions& options)> forward =
      {};
  // The same with what this rank keeps from pass to pass and from step to step, such as the hidden
  // states of the text before (FlagAI's `forward_step(batch, model, mems)`):
  //
  //   parts.forward_with_mems.run = [&](const Bundle& batch, RunOptions options, Bundle* mems) {
  //     options.all_hidden_states = true;
  //     Bundle outputs = LookBack(*model, batch, mems->get(keys::kHidden), options);
  //     mems->set(keys::kHidden, outputs.at(keys::kLastHiddenState));
  //     return outputs;
  //   };
  //
  // `mems` is empty at first, and at every pass that does not train. What is left in it is taken
  // off the tape, and saved with checkpoints: a run continues with as many data-parallel ranks as
  // it had. Ranks that share a copy of the model leave the same. (What follows what is said by
  // TrainerParts::train_batch.)
  StepPart<models::Bundle(const models::Bundle& batch, const models::RunOptions& options,
                          models::Bundle* mems)>
      forward_with_mems = {};
  // The loss of what the forward pass gave (its `logits` among it), summed over targets: 0-d, on
  // the tape. Of a pipeline, on the last stage. The model's own losses (models/auxiliary.h) are
  // added to this one, and to the next.
  StepPart<Tensor(const models::Bundle& outputs, const models::Bundle& batch)> loss = {};
  // The same made of the losses of the single tokens, [B, T], which are 0 where nothing is to be
  // predicted: logits are not kept for it, and may be split over ranks. The result of a forward
  // pass has what it counts as `loss_counts`. Not beside `loss`.
  StepPart<CountedLoss(const Tensor& token_losses, const models::Bundle& batch)> loss_of_tokens =
      {};
  // What of a micro-batch only these losses read; the model, which refuses what none of its blocks
  // takes, is not given it.
  std::vector<TensorKey> loss_reads = {};
  // A micro-batch's passes: gives its loss to `backward`, once or for several shares of it, and
  // returns the whole, off the tape. Throws Error under a pipeline.
  using Backward = std::function<void(const Tensor& loss)>;
  StepPart<Tensor(const models::Bundle& batch, const models::RunOptions& options,
                  const Backward& backward)>
      training_step = {};
  // Makes the optimizer over some of the parameters (dist::OptimizerFactory).
  StepPart<std::unique_ptr<optim::Optimizer>(std::vector<optim::ParameterGroup> groups)> optimizer =
      {};
};

// A forward pass as the parts have it; the result has `loss`, summed over targets. `batch` may lie
// anywhere.
models::Bundle Forward(models::Model& model, const StepParts& parts, const models::Bundle& batch,
                       const models::RunOptions& options);

// What the model is given of a micro-batch, and how it is told to run, for the sake of the losses.
models::Bundle InputsOfModel(const StepParts& parts, const models::Bundle& batch);
models::RunOptions OptionsOfModel(const StepParts& parts, models::RunOptions options);

// `forward_with_mems` as `forward`, on this bundle.
StepParts KeepingMems(StepParts parts, std::shared_ptr<models::Bundle> mems);

// The first part that may not be captured, in words; nullptr where all may be.
const char* WhyNotCaptured(const StepParts& parts);
// Throws Error for a part that a pipeline has no place for.
void CheckPartsOfPipeline(const StepParts& parts);
// Whether a part reads whole rows, of which context-parallel ranks see a share each.
bool ReadsWholeRows(const StepParts& parts);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_ENGINE_STEP_PARTS_H_
