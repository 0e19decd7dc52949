// SPDX-License-Identifier: Apache-2.0
#include "train/engine/pipelined_step.h"

#include <utility>

#include "autograd/autocast.h"
#include "models/model_keys.h"

namespace tessera::train {
namespace {

// The last stage's counts on every rank, a tensor for each of `micro_batches` (which finish in
// their order). None of them: none.
std::vector<Tensor> ShareCounts(const std::vector<Tensor>& mine, int64_t micro_batches,
                                dist::PipelineExecutor* executor) {
  std::vector<double> numbers;
  for (const Tensor& counts : mine) {
    if (counts.device().is_meta()) break;
    const std::vector<double> own = CopyTo(counts, Device::Cpu()).ToVector<double>();
    numbers.insert(numbers.end(), own.begin(), own.end());
  }
  const std::vector<double> all = executor->ShareLosses(numbers);
  const int64_t each = std::ssize(all) / micro_batches;
  std::vector<Tensor> shared;
  for (int64_t m = 0; each > 0 && m < micro_batches; ++m) {
    const auto begin = all.begin() + m * each;
    shared.push_back(Tensor::FromVector(std::vector<double>(begin, begin + each), {each}));
  }
  return shared;
}

// The loss of the last stage's outputs; it adds what it counts to `counts`.
std::function<Tensor(const models::Bundle&, const models::Bundle&)> CriterionOf(
    const StepParts& parts, std::vector<Tensor>* counts) {
  if (parts.loss_of_tokens.run == nullptr) return parts.loss.run;
  return [&parts, counts](const models::Bundle& outputs, const models::Bundle& batch) {
    const CountedLoss found = parts.loss_of_tokens.run(outputs.at(keys::kLoss), batch);
    if (found.counts.defined()) counts->push_back(found.counts);
    return found.loss;
  };
}

}  // namespace

PipelinedStep::PipelinedStep(const StepWork& work, const dist::Stage& stage,
                             const dist::ExecutorOptions& options)
    : work_(work), executor_(stage, options) {
  CheckPartsOfPipeline(work.parts);
}

StepOutputs PipelinedStep::RunStages(const StepInputs& inputs) {
  const PhaseClock::Scope phase(&work_.clock, Phase::kPipeline);
  const SavedTensorScope kept(work_.activations);
  const AutocastScope autocast(work_.products);
  std::vector<models::Bundle> batches;
  std::vector<models::Bundle> of_model;
  std::vector<Tensor> counts;  // on the last stage
  for (const models::Bundle& batch : inputs.batches) {
    batches.push_back(OnDevice(batch, work_.model.build().device));
    of_model.push_back(InputsOfModel(work_.parts, batches.back()));
  }
  dist::StepResult done = executor_.Run(
      of_model,
      {.run_options = [&](int m) { return OptionsOfModel(work_.parts, inputs.options(m)); },
       .scale_loss = [&](const Tensor& loss,
                         int m) { return work_.ShareOf(loss, inputs.ShareOf(m)); },
       .criterion = CriterionOf(work_.parts, &counts),
       .criterion_inputs = [&](int m) { return batches[static_cast<size_t>(m)]; },
       .before_gradients = [&](int chunk, int m) { work_.store.BeginMicroBatch(m, chunk); },
       .keep_outputs = inputs.outputs != nullptr});
  if (inputs.outputs != nullptr) *inputs.outputs = std::move(done.outputs);
  work_.clock.KeepTimeline(std::move(done.timeline));
  StepOutputs outputs;
  for (const double loss : executor_.ShareLosses(done.losses)) {
    outputs.losses.push_back(Full({}, loss, DType::kFloat64));
  }
  if (work_.parts.loss_of_tokens.run != nullptr) {
    outputs.counts = ShareCounts(counts, std::ssize(batches), &executor_);
  }
  return outputs;
}

std::vector<Tensor> PipelinedStep::RunPasses(const StepInputs& inputs) {
  return RunStages(inputs).losses;
}

StepOutputs PipelinedStep::Run(const StepInputs& inputs) {
  work_.BeginGradients(std::ssize(inputs.batches));
  StepOutputs outputs = RunStages(inputs);
  outputs.grad_norm = work_.UpdateParameters();
  return outputs;
}

}  // namespace tessera::train
