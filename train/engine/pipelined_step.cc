#include "train/engine/pipelined_step.h"

#include <utility>

#include "autograd/autocast.h"

namespace tessera::train {

PipelinedStep::PipelinedStep(const StepWork& work, const dist::Stage& stage,
                             const dist::ExecutorOptions& options)
    : work_(work), executor_(stage, options) {
  CheckPartsOfPipeline(work.parts);
}

std::vector<double> PipelinedStep::RunStages(const StepInputs& inputs) {
  const PhaseClock::Scope phase(&work_.clock, Phase::kPipeline);
  const SavedTensorScope kept(work_.activations);
  const AutocastScope autocast(work_.products);
  std::vector<models::Bundle> batches;
  for (const models::Bundle& batch : inputs.batches) {
    batches.push_back(OnDevice(batch, work_.model.build().device));
  }
  dist::StepResult done = executor_.Run(
      batches,
      {.run_options =
           [&](int m) {
             models::RunOptions options = inputs.options(m);
             options.keep_logits = options.keep_logits || work_.parts.loss.run != nullptr;
             return options;
           },
       .scale_loss = [&](const Tensor& loss, int) { return work_.ShareOf(loss, inputs.share); },
       .criterion = work_.parts.loss.run,
       .before_gradients = [&](int chunk, int m) { work_.store.BeginMicroBatch(m, chunk); },
       .keep_outputs = inputs.outputs != nullptr});
  if (inputs.outputs != nullptr) *inputs.outputs = std::move(done.outputs);
  work_.clock.KeepTimeline(std::move(done.timeline));
  return executor_.ShareLosses(done.losses);
}

std::vector<Tensor> PipelinedStep::RunPasses(const StepInputs& inputs) {
  std::vector<Tensor> losses;
  for (const double loss : RunStages(inputs)) losses.push_back(Full({}, loss, DType::kFloat64));
  return losses;
}

StepOutputs PipelinedStep::Run(const StepInputs& inputs) {
  work_.BeginGradients(std::ssize(inputs.batches));
  StepOutputs outputs;
  outputs.losses = RunPasses(inputs);
  outputs.grad_norm = work_.UpdateParameters();
  return outputs;
}

}  // namespace tessera::train
