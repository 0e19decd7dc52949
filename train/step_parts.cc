#include "train/step_parts.h"

#include "core/error.h"
#include "models/model_keys.h"

namespace tessera::train {

models::Bundle Forward(models::Model& model, const StepParts& parts, const models::Bundle& batch,
                       models::RunOptions options) {
  const models::Bundle there = OnDevice(batch, model.build().device);
  options.keep_logits = options.keep_logits || parts.loss.run != nullptr;
  models::Bundle outputs =
      parts.forward.run != nullptr ? parts.forward.run(there, options) : model.Run(there, options);
  if (parts.loss.run != nullptr) outputs.set(keys::kLoss, parts.loss.run(outputs, there));
  return outputs;
}

const char* WhyNotCaptured(const StepParts& parts) {
  const auto differs = [](const auto& part) { return part.run != nullptr && !part.capturable; };
  if (differs(parts.forward)) return "the program's forward pass may differ from step to step";
  if (differs(parts.loss)) return "the program's loss may differ from step to step";
  if (differs(parts.training_step)) return "the program's training step may differ";
  if (differs(parts.optimizer)) return "the program's optimizer may differ from step to step";
  return nullptr;
}

void CheckPartsOfPipeline(const StepParts& parts) {
  TESSERA_CHECK(parts.forward.run == nullptr, "engine",
                "a pipeline runs the model's blocks: `forward` cannot be replaced; `loss` can");
  TESSERA_CHECK(parts.training_step.run == nullptr, "engine",
                "a pipeline runs passes by its schedule: `training_step` cannot be replaced");
}

}  // namespace tessera::train
