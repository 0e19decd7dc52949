// SPDX-License-Identifier: Apache-2.0
#include "train/engine/pipelined_step.h"

#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "autograd/autocast.h"
#include "base/error.h"
#include "models/model_keys.h"

namespace tessera::train {
namespace {

// The last stage's counts on every rank, a tensor for each of `micro_batches` (which finish in
// their order). None of them: none.
std::vector<Tensor> ShareCounts(const std::vector<Tensor>& mine, int64_t micro_batches,
                                dist::PipelineExecutor* executor) {
  std::vector<double> numbers;
  for (const Tensor& counts : mine) {
    const std::vector<double> own =
        counts.device().is_meta() ? std::vector<double>(static_cast<size_t>(counts.numel()),
                                                        std::numeric_limits<double>::quiet_NaN())
                                  : CopyTo(counts, Device::Cpu()).ToVector<double>();
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

// What the last stage finds beside losses, of micro-batches in their order.
struct Found {
  std::vector<Tensor> counts;
  std::vector<std::map<std::string, Tensor>> auxiliaries;
};

// The loss of the last stage's outputs, of the next micro-batch.
Tensor Criterion(const StepParts& parts, const models::Bundle& outputs, const models::Bundle& batch,
                 const StepInputs& inputs, Found* found) {
  const models::RunOptions options = inputs.options(std::ssize(found->auxiliaries));
  found->auxiliaries.push_back(models::AuxiliariesOf(outputs));
  if (parts.loss.run != nullptr) {
    return models::WithAuxiliaries(parts.loss.run(outputs, batch), outputs, options);
  }
  if (parts.loss_of_tokens.run == nullptr) return outputs.at(keys::kLoss);
  const CountedLoss loss = parts.loss_of_tokens.run(outputs.at(keys::kLoss), batch);
  if (loss.counts.defined()) found->counts.push_back(loss.counts);
  return models::WithAuxiliaries(loss.loss, outputs, options);
}

// Of the names.
double HashOf(const models::Bundle& bundle) {
  std::string all;
  for (const auto& [name, value] : bundle.entries()) all += name + "\n";
  return static_cast<double>(std::hash<std::string>()(all) >> 12);
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
  std::vector<models::RunOptions> options;
  Found found;  // on the last stage
  for (const models::Bundle& batch : inputs.batches) {
    options.push_back(
        OptionsOfModel(work_.parts, inputs.options(static_cast<int64_t>(options.size()))));
    const models::Bundle there = OnDevice(batch, work_.model.build().device);
    batches.push_back(work_.model.ShareOfSequences(there, &options.back()));
    of_model.push_back(InputsOfModel(work_.parts, batches.back()));
  }
  dist::StepResult done = executor_.Run(
      of_model,
      {.run_options = [&](int m) { return options[static_cast<size_t>(m)]; },
       .scale_loss = [&](const Tensor& loss,
                         int m) { return work_.ShareOf(loss, inputs.ShareOf(m)); },
       .criterion =
           [&](const models::Bundle& outputs, const models::Bundle& batch) {
             return Criterion(work_.parts, outputs, batch, inputs, &found);
           },
       .criterion_inputs = [&](int m) { return batches[static_cast<size_t>(m)]; },
       .before_pass =
           [&](const dist::Action& action) {
             const bool forward = action.kind == dist::ActionKind::kForward ||
                                  action.kind == dist::ActionKind::kReceiveActivation;
             EnterPass(options[static_cast<size_t>(action.micro_batch)], /*backward=*/!forward,
                       action.chunk);
           },
       .before_gradients = [&](int chunk, int m) { work_.store.BeginMicroBatch(m, chunk); },
       .keep_outputs = inputs.outputs != nullptr});
  if (inputs.outputs != nullptr) *inputs.outputs = std::move(done.outputs);
  work_.clock.KeepTimeline(std::move(done.timeline));
  StepOutputs outputs;
  ShareNumbers(done.losses, found.auxiliaries, std::ssize(batches), &outputs);
  if (work_.parts.loss_of_tokens.run != nullptr) {
    outputs.counts = ShareCounts(found.counts, std::ssize(batches), &executor_);
  }
  return outputs;
}

// The last stage's losses and auxiliary losses on every rank. How many numbers there are says
// whether there are auxiliary ones; their names go over once.
void PipelinedStep::ShareNumbers(const std::vector<double>& losses,
                                 const std::vector<std::map<std::string, Tensor>>& auxiliaries,
                                 int64_t micro_batches, StepOutputs* outputs) {
  std::vector<double> mine = losses;
  models::Bundle named;
  for (const auto& values : auxiliaries) {
    for (const auto& [name, value] : values) {
      mine.push_back(dist::NumberOf(value));
      // Where the other stages receive it: in a dry run, nowhere.
      named.SetNamed(name, Full({}, 0.0, DType::kFloat32, work_.model.build().device));
    }
  }
  if (!named.empty()) mine.push_back(HashOf(named));
  const std::vector<double> all = executor_.ShareLosses(mine);
  for (int64_t m = 0; m < micro_batches; ++m) {
    outputs->losses.push_back(Full({}, all[static_cast<size_t>(m)], DType::kFloat64));
  }
  if (std::ssize(all) == micro_batches) return;
  const int64_t each = (std::ssize(all) - 1) / micro_batches - 1;
  if (auxiliary_names_.empty() || all.back() != auxiliary_hash_) {
    auxiliary_names_.clear();
    auxiliary_hash_ = all.back();
    const models::Bundle shared = executor_.ShareOutputs(named);
    for (const auto& [name, value] : shared.entries()) auxiliary_names_.push_back(name);
  }
  TESSERA_CHECK(std::ssize(auxiliary_names_) == each && (std::ssize(all) - 1) % micro_batches == 0,
                "auxiliary", "a model adds losses of the same names in every pass");
  for (int64_t m = 0; m < micro_batches; ++m) {
    std::map<std::string, Tensor>& values = outputs->auxiliaries.emplace_back();
    for (int64_t i = 0; i < each; ++i) {
      values[auxiliary_names_[static_cast<size_t>(i)]] =
          Full({}, all[static_cast<size_t>(micro_batches + m * each + i)], DType::kFloat64);
    }
  }
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
