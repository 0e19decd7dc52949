// SPDX-License-Identifier: Apache-2.0
#include "train/engine/plain_step.h"

#include "autograd/autocast.h"
#include "autograd/autograd.h"
#include "models/model_keys.h"

namespace tessera::train {

namespace {

models::Bundle Detached(const models::Bundle& bundle) {
  models::Bundle detached;
  for (const auto& [name, tensor] : bundle.entries()) {
    detached.SetNamed(name, tensor.defined() ? tensor.Detach() : tensor);
  }
  return detached;
}

}  // namespace

// The loss of one micro-batch, summed over its targets; its gradient is left in the parameters.
void PlainStep::RunMicroBatch(const StepInputs& inputs, size_t m, StepOutputs* results) const {
  const auto number = static_cast<int64_t>(m);
  const models::RunOptions options = inputs.options(number);
  work_.store.BeginMicroBatch(number);
  EnterPass(options, /*backward=*/false);
  if (work_.parts.training_step.run != nullptr) {
    results->losses.push_back(RunTrainingStep(inputs.batches[m], options, inputs.ShareOf(number)));
    return;
  }
  const models::Bundle outputs = work_.RunForward(inputs.batches[m], options);
  const Tensor& loss = outputs.at(keys::kLoss);
  EnterPass(options, /*backward=*/true);
  work_.RunBackward(loss, inputs.ShareOf(number));
  if (inputs.outputs != nullptr) inputs.outputs->push_back(Detached(outputs));
  results->losses.push_back(loss.Detach());
  results->auxiliaries.push_back(models::AuxiliariesOf(outputs));
  if (outputs.has(keys::kLossCounts)) results->counts.push_back(outputs.at(keys::kLossCounts));
}

// All of it counts as the forward pass.
Tensor PlainStep::RunTrainingStep(const models::Bundle& batch, const models::RunOptions& options,
                                  const Tensor& share) const {
  const PhaseClock::Scope phase(&work_.clock, Phase::kForward);
  const SavedTensorScope kept(work_.activations);
  const AutocastScope autocast(work_.products);
  const nn::RunningStatistics::Scope found(work_.statistics);
  const auto backward = [&](const Tensor& loss) {
    const SavedTensorScope plain(nullptr);
    const AutocastScope full(DType::kFloat32);
    EnterPass(options, /*backward=*/true);
    Backward(work_.ShareOf(loss, share));
  };
  return work_.parts.training_step.run(OnDevice(batch, work_.model.build().device), options,
                                       backward);
}

StepOutputs PlainStep::RunMicroBatches(const StepInputs& inputs) const {
  StepOutputs results;
  for (size_t m = 0; m < inputs.batches.size(); ++m) RunMicroBatch(inputs, m, &results);
  return results;
}

std::vector<Tensor> PlainStep::RunPasses(const StepInputs& inputs) {
  return RunMicroBatches(inputs).losses;
}

StepOutputs PlainStep::Run(const StepInputs& inputs) {
  work_.BeginGradients(std::ssize(inputs.batches));
  StepOutputs outputs = RunMicroBatches(inputs);
  outputs.grad_norm = work_.UpdateParameters();
  return outputs;
}

void PlainStep::Undo() {
  work_.store.AbandonStep();
  if (work_.statistics != nullptr) work_.statistics->Clear();
}

const char* PlainStep::WhyNotCaptured(int64_t micro_batches) const {
  if (const char* why = train::WhyNotCaptured(work_.parts)) return why;
  if (work_.model.has_hooks()) return "a module has hooks";
  bool reads = false;
  work_.model.VisitModules([&](nn::Module& module) { reads = reads || module.reads_device(); });
  if (reads) return "the model has experts, whose numbers of tokens are read from the device";
  if (work_.clock.waits()) return "wall_clock_breakdown is asked for";
  if (work_.activations != nullptr) return "off-loaded activations";
  return work_.store.WhyNotCaptured(micro_batches);
}

}  // namespace tessera::train
