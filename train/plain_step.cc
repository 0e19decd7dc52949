#include "train/plain_step.h"

#include "autograd/autocast.h"
#include "autograd/autograd.h"
#include "models/model_keys.h"

namespace tessera::train {

// The loss of one micro-batch, summed over its targets; its gradient is left in the parameters.
Tensor PlainStep::RunMicroBatch(const StepInputs& inputs, size_t m) const {
  const auto number = static_cast<int64_t>(m);
  const models::RunOptions options = inputs.options(number);
  work_.store.BeginMicroBatch(number);
  if (work_.parts.training_step.run != nullptr) {
    return RunTrainingStep(inputs.batches[m], options, inputs.share);
  }
  Tensor loss;
  {
    const PhaseClock::Scope phase(&work_.clock, Phase::kForward);
    const SavedTensorScope kept(work_.activations);
    const AutocastScope autocast(work_.products);
    loss = Forward(work_.model, work_.parts, inputs.batches[m], options).at(keys::kLoss);
  }
  const PhaseClock::Scope phase(&work_.clock, Phase::kBackward);
  Backward(work_.ShareOf(loss, inputs.share));
  return loss.Detach();
}

// All of it counts as the forward pass.
Tensor PlainStep::RunTrainingStep(const models::Bundle& batch, const models::RunOptions& options,
                                  const Tensor& share) const {
  const PhaseClock::Scope phase(&work_.clock, Phase::kForward);
  const SavedTensorScope kept(work_.activations);
  const AutocastScope autocast(work_.products);
  const auto backward = [&](const Tensor& loss) {
    const SavedTensorScope plain(nullptr);
    const AutocastScope full(DType::kFloat32);
    Backward(work_.ShareOf(loss, share));
  };
  return work_.parts.training_step.run(OnDevice(batch, work_.model.build().device), options,
                                       backward);
}

StepOutputs PlainStep::Run(const StepInputs& inputs) {
  StepOutputs outputs;
  work_.BeginGradients(std::ssize(inputs.batches));
  for (size_t m = 0; m < inputs.batches.size(); ++m) {
    outputs.losses.push_back(RunMicroBatch(inputs, m));
  }
  outputs.grad_norm = work_.UpdateParameters();
  return outputs;
}

const char* PlainStep::WhyNotCaptured(int64_t micro_batches) const {
  if (const char* why = train::WhyNotCaptured(work_.parts)) return why;
  if (work_.model.has_hooks()) return "a module has hooks";
  if (work_.clock.waits()) return "wall_clock_breakdown is asked for";
  if (work_.activations != nullptr) return "off-loaded activations";
  return work_.store.WhyNotCaptured(micro_batches);
}

}  // namespace tessera::train
