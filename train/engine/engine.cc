// SPDX-License-Identifier: Apache-2.0
#include "train/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/autograd.h"
#include "autograd/finite_watch.h"
#include "core/device_graph.h"
#include "core/execution_context.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/pipeline/executor.h"
#include "dist/pipeline/pipelined_model.h"
#include "nn/running_statistics.h"
#include "optim/modules/module_parameters.h"
#include "optim/parameter_groups.h"
#include "train/engine/bad_operation_watch.h"
#include "train/engine/captured_step.h"
#include "train/engine/phase_clock.h"
#include "train/engine/pipelined_step.h"
#include "train/engine/plain_step.h"
#include "train/engine/step_runner.h"

namespace tessera::train {
namespace {

// In the names of tensors of a checkpoint: "mems.<data-parallel rank>.<name>".
constexpr char kMems[] = "mems.";

// Where some parameters' updates need all of them, who says which; what is cut anywhere can be
// updated while the backward pass continues.
dist::NeedsWhole WholeParameters(const EngineOptions& options,
                                 const std::vector<optim::Parameter>& parameters) {
  for (const optim::Parameter& parameter : parameters) {
    if (!options.rule->NeedsWhole(parameter)) continue;
    return [rule = options.rule](const optim::Parameter& p) { return rule->NeedsWhole(p); };
  }
  return nullptr;
}

std::unique_ptr<dist::ParameterStore> MakeStore(models::Model& model, const dist::Mesh& mesh,
                                                const EngineOptions& options,
                                                dist::OptimizerFactory make) {
  TESSERA_CHECK(options.rule != nullptr, "engine", "there is no optimizer");
  if (make == nullptr) {
    make = [rule = options.rule](std::vector<optim::ParameterGroup> groups) {
      return rule->Make(std::move(groups), /*lr=*/0);
    };
  }
  const dist::StoreGroups ranks = dist::StoreGroupsOf(mesh);
  const dist::Stage* const stage = model.stage();
  const std::vector<optim::Parameter> parameters =
      stage != nullptr ? stage->OptimizedParameters() : optim::ParametersOf(model);
  std::vector<optim::ParameterGroup> groups =
      optim::SplitByDecay(parameters, {.weight_decay = options.weight_decay});
  const dist::NeedsWhole whole = WholeParameters(options, parameters);
  if (stage != nullptr) {
    return std::make_unique<dist::ParameterStore>(*stage, std::move(groups), make, ranks,
                                                  options.store, whole);
  }
  return std::make_unique<dist::ParameterStore>(model, std::move(groups), make, ranks,
                                                options.store, whole);
}

std::unique_ptr<dist::ActivationStore> MakeActivations(const EngineOptions& options) {
  if (!options.activations) return nullptr;
  return std::make_unique<dist::ActivationStore>(*options.activations);
}

std::optional<optim::GradScaler> MakeScaler(const EngineOptions& options, const Device& device) {
  std::optional<optim::GradScaler> scaler;
  if (options.loss_scaling) {
    scaler.emplace(*options.loss_scaling, device);
  } else if (options.skip_non_finite) {  // a scale of 1 changes no bit
    scaler.emplace(optim::GradScalerOptions{.dynamic = false, .initial_scale = 1}, device);
  }
  return scaler;
}

// On the CPU, and nobody else's.
Tensor HostCopy(const Tensor& t) {
  const Tensor host = CopyTo(t.Detach(), Device::Cpu());
  const Tensor copy = Empty(host.shape(), host.dtype());
  CopyInto(copy, host);
  return copy;
}

// Of a parameter that has collected one.
std::optional<BadNumber> BadGradient(models::Model& model, Bundle* tensors) {
  std::optional<BadNumber> found;
  model.VisitParameters([&](nn::Parameter& p) {
    if (found || !IsLeaf(p.tensor) || !Grad(p.tensor).defined()) return;
    const NumbersSummary numbers = SummaryOf(Grad(p.tensor));
    if (numbers.finite()) return;
    found = BadNumber{.kind = BadNumber::Kind::kSum,
                      .place = {.micro_batch = std::numeric_limits<int64_t>::max()},
                      .operation = "",
                      .module = p.name,
                      .numbers = numbers};
    if (tensors != nullptr) {
      tensors->SetNamed("gradient." + p.name, HostCopy(Grad(p.tensor)));
    }
  });
  return found;
}

// Single passes end at what is not finite. A caller's own watch is left where it is.
class PassCheck {
 public:
  explicit PassCheck(const EngineOptions& options)
      : scope_(options.check_finite ? &watch_ : TapeWatcher::Current()) {}

 private:
  FiniteWatch watch_ = FiniteWatch(/*throws=*/true);
  const TapeWatcher::Scope scope_;
};

}  // namespace

struct Engine::Parts {
  Parts(models::Model& model, const dist::Mesh& mesh, const EngineOptions& options,
        StepParts step_parts);

  Tensor ShareOnDevice(double share) const {
    return Full({}, share, DType::kFloat64, model.build().device);
  }
  StepInputs InputsOf(const EngineStep& step) const;
  StepResult ResultOf(const StepOutputs& outputs) const;

  models::Model& model;
  const dist::Mesh mesh;
  const EngineOptions options;
  const std::shared_ptr<models::Bundle> mems = std::make_shared<models::Bundle>();
  const StepParts parts;
  std::unique_ptr<dist::ActivationStore> activations;  // nullptr: kept where they are
  std::unique_ptr<dist::ParameterStore> store;
  std::optional<optim::GradScaler> scaler;
  PhaseClock phases;
  nn::RunningStatistics statistics;  // of the step under way
  const StepWork work;
  std::unique_ptr<StepRunner> runner;
};

Engine::Parts::Parts(models::Model& model, const dist::Mesh& mesh, const EngineOptions& options,
                     StepParts step_parts)
    : model(model),
      mesh(mesh),
      options(options),
      parts(KeepingMems(std::move(step_parts), mems)),
      activations(MakeActivations(options)),
      store(MakeStore(model, mesh, options, parts.optimizer.run)),
      scaler(MakeScaler(options, model.build().device)),
      phases(options.time_phases && !model.build().device.is_cpu()
                 ? std::optional<Device>(model.build().device)
                 : std::nullopt),
      work({.model = model,
            .parts = parts,
            .store = *store,
            .activations = activations.get(),
            .scaler = scaler ? &*scaler : nullptr,
            .clock = phases,
            .products = options.products,
            .max_grad_norm = options.max_grad_norm,
            // Cut parameters (over one rank, too), and a pipeline's stages, have no place for them.
            .statistics = options.store.shards_parameters() || model.stage() != nullptr
                              ? nullptr
                              : &statistics,
            .data_parallel = mesh.dp()}) {
  TESSERA_CHECK(mesh.cp()->size() == 1 || !ReadsWholeRows(parts), "engine",
                "a forward pass or a loss of the program's own reads whole rows, which cp ",
                mesh.cp()->size(), " shares out over ranks");
  if (const dist::Stage* stage = model.stage()) {
    runner = std::make_unique<PipelinedStep>(
        work, *stage,
        dist::ExecutorOptions{.schedule = options.schedule,
                              .record_timeline = options.time_phases});
  } else {
    runner = std::make_unique<PlainStep>(work);
  }
}

Engine::Engine(models::Model& model, const dist::Mesh& mesh, const EngineOptions& options,
               StepParts parts)
    : model_(model), parts_(std::make_unique<Parts>(model, mesh, options, std::move(parts))) {}

Engine::~Engine() = default;

void Engine::Start() { parts_->store->Start(); }

void Engine::AbandonStep() { parts_->runner->Undo(); }

void Engine::Loaded() { parts_->store->Loaded(); }

void Engine::ReleaseStepMemory() { parts_->runner->ReleaseMemory(); }

dist::ParameterStore& Engine::store() { return *parts_->store; }

const optim::GradScaler* Engine::scaler() const {
  return parts_->scaler ? &*parts_->scaler : nullptr;
}

DType Engine::products() const { return parts_->options.products; }

PhaseClock& Engine::phases() { return parts_->phases; }

models::Bundle Engine::Forward(const models::Bundle& batch, const models::RunOptions& options) {
  return train::Forward(model_, parts_->parts, batch, options);
}

StepInputs Engine::Parts::InputsOf(const EngineStep& step) const {
  std::vector<double> shares(step.batches.size(), 0.0);
  for (size_t m = 0; m < shares.size() && static_cast<int64_t>(m) < step.filled; ++m) {
    shares[m] = 1.0 / step.targets;
    if (!step.divisors.empty()) shares[m] /= step.divisors[m];
  }
  const Shape count = {std::ssize(shares)};
  const Device& device = model.build().device;
  return {.batches = step.batches,
          .shares = device.is_meta() ? Empty(count, DType::kFloat64, device)
                                     : CopyTo(Tensor::FromVector(shares, count), device),
          .number = step.number,
          .options = step.options,
          .outputs = step.outputs};
}

StepResult Engine::Parts::ResultOf(const StepOutputs& outputs) const {
  StepResult result;
  for (const Tensor& loss : outputs.losses) result.losses.push_back(dist::NumberOf(loss));
  for (const Tensor& counts : outputs.counts) {
    if (counts.device().is_meta()) {
      result.counts.emplace_back(counts.numel(), std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    result.counts.push_back(CopyTo(counts, Device::Cpu()).ToVector<double>());
  }
  for (const auto& values : outputs.auxiliaries) {
    std::map<std::string, double>& numbers = result.auxiliaries.emplace_back();
    for (const auto& [name, value] : values) numbers[name] = dist::NumberOf(value);
  }
  result.grad_norm = dist::NumberOf(outputs.grad_norm);
  result.updated = !scaler || std::isfinite(result.grad_norm);
  return result;
}

// A caller's own watch is left where it is.
StepResult Engine::Step(const EngineStep& step) {
  FiniteWatch watch;
  const TapeWatcher::Scope scope(parts_->options.check_finite ? &watch : TapeWatcher::Current());
  parts_->store->optimizer().set_learning_rate(step.learning_rate);
  StepResult result = parts_->ResultOf(parts_->runner->Run(parts_->InputsOf(step)));
  for (size_t m = 0; m < result.losses.size(); ++m) {
    if (static_cast<int64_t>(m) < step.filled) continue;
    result.losses[m] = 0;
    if (m < result.counts.size()) std::fill(result.counts[m].begin(), result.counts[m].end(), 0.0);
  }
  result.bad_number = watch.found();
  return result;
}

std::optional<BadNumber> Engine::FindBadNumber(const EngineStep& step, Bundle* tensors) {
  BadOperationWatch watch(/*stops=*/parts_->mesh.world()->size() == 1);
  const TapeWatcher::Scope scope(&watch);
  BeginStep(std::ssize(step.batches), step.learning_rate);
  try {
    parts_->runner->RunPasses(parts_->InputsOf(step));
  } catch (const BadOperationWatch::Stop&) {
  }
  std::optional<BadNumber> found = watch.found();
  if (tensors != nullptr) *tensors = watch.tensors();
  if (!found) found = BadGradient(model_, tensors);
  parts_->runner->Undo();
  return found;
}

StepGradients Engine::Gradients(const EngineStep& step) {
  BeginStep(std::ssize(step.batches), step.learning_rate);
  parts_->runner->RunPasses(parts_->InputsOf(step));
  parts_->store->FinishGradients();
  StepGradients gradients = {.tensors = {}, .norm = dist::NumberOf(parts_->work.Clip().norm)};
  model_.VisitParameters([&](nn::Parameter& p) {
    if (!parts_->options.store.replicates() || p.elsewhere || p.tied_to != nullptr) return;
    if (!IsLeaf(p.tensor) || !Grad(p.tensor).defined()) return;
    gradients.tensors.push_back({p.name, HostCopy(Grad(p.tensor)), p.placement});
  });
  parts_->runner->Undo();
  return gradients;
}

// Nothing is updated before FinishStep, so that the step can still be abandoned.
void Engine::BeginStep(int64_t micro_batches, double learning_rate) {
  parts_->store->optimizer().set_learning_rate(learning_rate);
  parts_->store->BeginStep(micro_batches);
}

models::Bundle Engine::RunForward(int64_t micro_batch, const models::Bundle& batch,
                                  const models::RunOptions& options) {
  TESSERA_CHECK(model_.stage() == nullptr, "engine",
                "a pipeline runs all passes of a step by its schedule, not a single one");
  const PassCheck check(parts_->options);
  parts_->store->BeginMicroBatch(micro_batch);
  return parts_->work.RunForward(batch, options);
}

void Engine::RunBackward(const Tensor& loss, double share) {
  const PassCheck check(parts_->options);
  parts_->work.RunBackward(loss, parts_->ShareOnDevice(share));
}

std::vector<double> Engine::RunPasses(const EngineStep& step) {
  const PassCheck check(parts_->options);
  std::vector<double> losses;
  for (const Tensor& loss : parts_->runner->RunPasses(parts_->InputsOf(step))) {
    losses.push_back(dist::NumberOf(loss));
  }
  return losses;
}

StepResult Engine::FinishStep() { return parts_->ResultOf({{}, parts_->work.UpdateParameters()}); }

void Engine::CaptureSteps(int64_t micro_batches, const char* why_not,
                          std::function<void(const std::string&)> say) {
  const Device& device = model_.build().device;
  if (!CanRecordGraph(device)) return;
  if (why_not == nullptr && parts_->options.check_finite)
    why_not = "check_finite looks through all numbers";
  if (why_not == nullptr) why_not = parts_->runner->WhyNotCaptured(micro_batches);
  if (why_not == nullptr && parts_->mesh.world()->size() > 1) why_not = "several ranks";
  if (why_not != nullptr) {
    say(Concat("steps are not captured as a CUDA graph: ", why_not));
    return;
  }
  parts_->runner =
      std::make_unique<CapturedStep>(std::move(parts_->runner), device, std::move(say));
}

std::vector<dist::CheckpointTensor> Engine::Tensors() {
  std::vector<dist::CheckpointTensor> tensors = parts_->store->CheckpointTensors();
  if (parts_->options.loss_scaling) {
    parts_->scaler->VisitState([&](const std::string& name, const Tensor& t) {
      tensors.push_back({"scaler." + name, t, Placement::Whole(t.shape())});
    });
  }
  for (const auto& [name, t] : parts_->mems->entries()) {
    tensors.push_back(
        {Concat(kMems, parts_->mesh.dp()->rank(), ".", name), t, Placement::Whole(t.shape())});
  }
  return tensors;
}

Status Engine::ExpectMems(const dist::Checkpoint& checkpoint) {
  int64_t ranks = 0;
  *parts_->mems = models::Bundle();
  for (const auto& [name, entry] : checkpoint.entries()) {
    if (!name.starts_with(kMems)) continue;
    const size_t dot = name.find('.', sizeof(kMems) - 1);
    const int64_t rank = std::atoll(name.c_str() + sizeof(kMems) - 1);
    ranks = std::max(ranks, rank + 1);
    if (dot == std::string::npos || rank != parts_->mesh.dp()->rank()) continue;
    parts_->mems->SetNamed(name.substr(dot + 1),
                           Empty(entry.shape, entry.dtype, model_.build().device));
  }
  if (ranks == 0 || ranks == parts_->mesh.dp()->size()) return OkStatus();
  return InvalidArgument(checkpoint.directory(), ": '", kMems, "0' ... '", kMems, ranks - 1,
                         "' are what ", ranks, " data-parallel ranks keep from pass to pass; this ",
                         "run has ", parts_->mesh.dp()->size());
}

}  // namespace tessera::train
