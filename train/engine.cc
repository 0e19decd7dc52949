#include "train/engine.h"

#include <cmath>
#include <utility>

#include "core/device_graph.h"
#include "dist/pipeline/executor.h"
#include "dist/pipeline/pipelined_model.h"
#include "dist/store/optimized_parameters.h"
#include "optim/parameter_groups.h"
#include "train/captured_step.h"
#include "train/pipelined_step.h"
#include "train/plain_step.h"

namespace tessera::train {
namespace {

// Where some parameters' updates need all of them, who says which; what is cut anywhere can be
// updated while the backward pass goes on.
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
  const dist::StoreGroups ranks = {.data = mesh.dp(), .tensor = mesh.tp()};
  const dist::Stage* const stage = dist::StageOf(model);
  const std::vector<optim::Parameter> parameters =
      stage != nullptr ? stage->OptimizedParameters() : dist::OptimizedParameters(model);
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

}  // namespace

Engine::Engine(models::Model& model, const dist::Mesh& mesh, const EngineOptions& options,
               StepParts parts)
    : model_(model),
      mesh_(mesh),
      options_(options),
      parts_(std::move(parts)),
      phases_(options.time_phases && !model.build().device.is_cpu()
                  ? std::optional<Device>(model.build().device)
                  : std::nullopt) {
  if (options.activations) {
    activations_ = std::make_unique<dist::ActivationStore>(*options.activations);
  }
  store_ = MakeStore(model, mesh, options, parts_.optimizer.run);
  if (options.loss_scaling) {
    scaler_.emplace(*options.loss_scaling, model.build().device);
  } else if (options.skip_non_finite) {  // a scale of 1 changes no bit
    scaler_.emplace(optim::GradScalerOptions{.dynamic = false, .initial_scale = 1},
                    model.build().device);
  }
  const StepWork work = {.model = model_,
                         .parts = parts_,
                         .store = *store_,
                         .activations = activations_.get(),
                         .scaler = scaler_ ? &*scaler_ : nullptr,
                         .clock = phases_,
                         .products = options_.products,
                         .max_grad_norm = options_.max_grad_norm};
  if (const dist::Stage* stage = dist::StageOf(model)) {
    runner_ = std::make_unique<PipelinedStep>(work, *stage, options.schedule);
  } else {
    runner_ = std::make_unique<PlainStep>(work);
  }
}

Engine::~Engine() = default;

models::Bundle Engine::Forward(const models::Bundle& batch, const models::RunOptions& options) {
  return train::Forward(model_, parts_, batch, options);
}

StepResult Engine::Step(const EngineStep& step) {
  store_->optimizer().set_learning_rate(step.learning_rate);
  const StepOutputs outputs =
      runner_->Run({.batches = step.batches,
                    .share = Full({}, 1.0 / step.targets, DType::kFloat64, model_.build().device),
                    .number = step.number,
                    .options = step.options});
  StepResult result;
  for (const Tensor& loss : outputs.losses) result.losses.push_back(dist::NumberOf(loss));
  result.grad_norm = dist::NumberOf(outputs.grad_norm);
  result.updated = !scaler_ || std::isfinite(result.grad_norm);
  return result;
}

void Engine::CaptureSteps(int64_t micro_batches, const char* why_not, const RunLog* log) {
  const Device& device = model_.build().device;
  if (!CanRecordGraph(device)) return;
  if (why_not == nullptr) why_not = runner_->WhyNotCaptured(micro_batches);
  if (why_not == nullptr && mesh_.world()->size() > 1) why_not = "several ranks";
  if (why_not != nullptr) {
    log->Info(Concat("steps are not captured as a CUDA graph: ", why_not));
    return;
  }
  runner_ = std::make_unique<CapturedStep>(std::move(runner_), device, log);
}

std::vector<dist::CheckpointTensor> Engine::Tensors() {
  std::vector<dist::CheckpointTensor> tensors = store_->CheckpointTensors();
  if (options_.loss_scaling) {
    scaler_->VisitState([&](const std::string& name, const Tensor& t) {
      tensors.push_back({"scaler." + name, t, Placement::Whole(t.shape())});
    });
  }
  return tensors;
}

}  // namespace tessera::train
