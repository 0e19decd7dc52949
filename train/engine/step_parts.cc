// SPDX-License-Identifier: Apache-2.0
#include "train/engine/step_parts.h"

#include <utility>

#include "base/error.h"
#include "models/model_keys.h"

namespace tessera::train {

models::Bundle InputsOfModel(const StepParts& parts, const models::Bundle& batch) {
  models::Bundle inputs = batch;
  for (const TensorKey& key : parts.loss_reads) inputs.erase(key);
  return inputs;
}

models::RunOptions OptionsOfModel(const StepParts& parts, models::RunOptions options) {
  if (parts.loss.run != nullptr) {
    options.keep_logits = true;
    options.loss_targets = -1;  // its own losses are added to what `loss` makes
  }
  if (parts.loss_of_tokens.run == nullptr) return options;
  options.loss_reduction = LossReduction::kNone;
  options.label_smoothing = 0;  // what it means is the loss's to say
  return options;
}

models::Bundle Forward(models::Model& model, const StepParts& parts, const models::Bundle& batch,
                       const models::RunOptions& given) {
  TESSERA_CHECK(parts.loss.run == nullptr || parts.loss_of_tokens.run == nullptr, "engine",
                "both `loss` and `loss_of_tokens` are given");
  const models::Bundle there = OnDevice(batch, model.build().device);
  const models::Bundle inputs = InputsOfModel(parts, there);
  const models::RunOptions options = OptionsOfModel(parts, given);
  models::Bundle outputs, none;
  if (parts.forward_with_mems.run != nullptr) {
    outputs = parts.forward_with_mems.run(inputs, options, &none);
  } else {
    outputs = parts.forward.run != nullptr ? parts.forward.run(inputs, options)
                                           : model.Run(inputs, options);
  }
  if (parts.loss.run != nullptr) {
    outputs.set(keys::kLoss,
                models::WithAuxiliaries(parts.loss.run(outputs, there), outputs, given));
  }
  if (parts.loss_of_tokens.run != nullptr) {
    const CountedLoss found = parts.loss_of_tokens.run(outputs.at(keys::kLoss), there);
    outputs.set(keys::kLoss, models::WithAuxiliaries(found.loss, outputs, given));
    if (found.counts.defined()) outputs.set(keys::kLossCounts, found.counts);
  }
  return outputs;
}

StepParts KeepingMems(StepParts parts, std::shared_ptr<models::Bundle> mems) {
  if (parts.forward_with_mems.run == nullptr) return parts;
  TESSERA_CHECK(parts.forward.run == nullptr, "engine",
                "both `forward` and `forward_with_mems` are given");
  parts.forward = {.run = [run = std::move(parts.forward_with_mems.run), mems = std::move(mems)](
                              const models::Bundle& batch, const models::RunOptions& options) {
    models::Bundle kept;
    if (options.context.training) kept = *mems;
    models::Bundle outputs = run(batch, options, &kept);
    if (!options.context.training) return outputs;
    *mems = models::Bundle();
    for (const auto& [name, tensor] : kept.entries()) {
      mems->SetNamed(name, tensor.Detach().ContiguousCopy());
    }
    return outputs;
  }};
  parts.forward_with_mems = {};
  return parts;
}

const char* WhyNotCaptured(const StepParts& parts) {
  const auto differs = [](const auto& part) { return part.run != nullptr && !part.capturable; };
  if (differs(parts.forward)) return "the program's forward pass may differ from step to step";
  if (differs(parts.loss) || differs(parts.loss_of_tokens)) {
    return "the program's loss may differ from step to step";
  }
  if (differs(parts.training_step)) return "the program's training step may differ";
  if (differs(parts.optimizer)) return "the program's optimizer may differ from step to step";
  return nullptr;
}

bool ReadsWholeRows(const StepParts& parts) {
  return parts.forward.run != nullptr || parts.forward_with_mems.run != nullptr ||
         parts.loss.run != nullptr || parts.loss_of_tokens.run != nullptr ||
         parts.training_step.run != nullptr;
}

void CheckPartsOfPipeline(const StepParts& parts) {
  TESSERA_CHECK(parts.forward.run == nullptr, "engine",
                "a pipeline runs the model's blocks: `forward` cannot be replaced; `loss` can");
  TESSERA_CHECK(parts.training_step.run == nullptr, "engine",
                "a pipeline runs passes by its schedule: `training_step` cannot be replaced");
}

}  // namespace tessera::train
