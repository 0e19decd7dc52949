#include "train/engine.h"

#include <utility>

#include "autograd/autocast.h"
#include "autograd/autograd.h"
#include "dist/pipeline/pipelined_model.h"
#include "dist/store/optimized_parameters.h"
#include "models/model_keys.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "optim/parameter_groups.h"

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
               EngineParts parts)
    : model_(model), mesh_(mesh), options_(options), parts_(std::move(parts)) {
  if (options.activations) {
    activations_ = std::make_unique<dist::ActivationStore>(*options.activations);
  }
  if (const dist::Stage* stage = dist::StageOf(model)) {
    pipeline_ = std::make_unique<dist::PipelineExecutor>(
        *stage, dist::ExecutorOptions{.schedule = options.schedule});
  }
  store_ = MakeStore(model, mesh, options, parts_.make_optimizer);
  if (options.loss_scaling) scaler_.emplace(*options.loss_scaling, model.build().device);
}

Engine::~Engine() = default;

// Where phases are timed, each waits for the device.
PhaseClock::Scope Engine::TimePhase(Phase phase) {
  const Device& device = model_.build().device;
  return PhaseClock::Scope(&phases_, phase,
                           options_.time_phases && !device.is_cpu() ? &device : nullptr);
}

models::Bundle Engine::Forward(const models::Bundle& batch, const models::RunOptions& options) {
  const models::Bundle there = OnDevice(batch, model_.build().device);
  return parts_.forward != nullptr ? parts_.forward(there, options) : model_.Run(there, options);
}

// --- A step --------------------------------------------------------------------------------------

// What a micro-batch's summed loss adds to the step's mean, scaled as mixed precision asks.
Tensor Engine::ShareOf(const Tensor& loss, const Tensor& share) const {
  const Tensor part = Mul(loss, Cast(share, loss.dtype()));
  return scaler_ ? scaler_->ScaleLoss(part) : part;
}

// With neither clipping nor loss scaling nothing but the gradients goes into the update.
void Engine::BeginGradients(int64_t micro_batches) {
  const bool known = options_.max_grad_norm == 0 && !scaler_;
  store_->BeginStep(micro_batches, known ? std::optional(optim::StepInputs{}) : std::nullopt);
}

// The loss of one micro-batch, summed over its targets; its gradient is left in the parameters.
Tensor Engine::RunMicroBatch(const models::Bundle& batch, int64_t micro_batch, const Tensor& share,
                             const EngineStep& step) {
  store_->BeginMicroBatch(micro_batch);
  Tensor loss;
  {
    const PhaseClock::Scope clock = TimePhase(Phase::kForward);
    const SavedTensorScope kept(activations_.get());
    const AutocastScope autocast(options_.products);
    loss = Forward(batch, step.options(micro_batch)).at(keys::kLoss);
  }
  const PhaseClock::Scope clock = TimePhase(Phase::kBackward);
  Backward(ShareOf(loss, share));
  return loss.Detach();
}

// From the batches to the updated parameters, with nothing read from the device in between.
StepOutputs Engine::RunMicroBatches(const StepInputs& inputs, const EngineStep& step) {
  StepOutputs outputs;
  BeginGradients(std::ssize(inputs.batches));
  for (const models::Bundle& batch : inputs.batches) {
    outputs.losses.push_back(RunMicroBatch(batch, std::ssize(outputs.losses), inputs.share, step));
  }
  outputs.grad_norm = UpdateParameters();
  return outputs;
}

// The same stage by stage; the losses are the last stage's.
StepResult Engine::RunPipeline(const StepInputs& inputs, const EngineStep& step) {
  StepResult result;
  BeginGradients(std::ssize(inputs.batches));
  {
    const PhaseClock::Scope clock = TimePhase(Phase::kPipeline);
    const SavedTensorScope kept(activations_.get());
    const AutocastScope autocast(options_.products);
    std::vector<models::Bundle> bundles;
    for (const models::Bundle& batch : inputs.batches) {
      bundles.push_back(OnDevice(batch, model_.build().device));
    }
    const dist::StepResult done = pipeline_->Run(
        bundles,
        {.run_options = [&](int m) { return step.options(m); },
         .scale_loss = [&](const Tensor& loss, int) { return ShareOf(loss, inputs.share); },
         .before_gradients = [&](int chunk, int m) { store_->BeginMicroBatch(m, chunk); }});
    result.losses = pipeline_->ShareLosses(done.losses);
  }
  result.grad_norm = dist::NumberOf(UpdateParameters());
  return result;
}

StepResult Engine::Step(const EngineStep& step) {
  const StepInputs inputs = {step.batches,
                             Full({}, 1.0 / step.targets, DType::kFloat64, model_.build().device)};
  store_->optimizer().set_learning_rate(step.learning_rate);
  if (pipeline_ != nullptr) return RunPipeline(inputs, step);
  const auto work = [&](const StepInputs& in) { return RunMicroBatches(in, step); };
  const auto undo = [&] { store_->optimizer().ZeroGrad(); };
  const StepOutputs outputs =
      captured_ == nullptr ? work(inputs) : captured_->Run(inputs, step.number, work, undo);
  StepResult result;
  for (const Tensor& loss : outputs.losses) result.losses.push_back(dist::NumberOf(loss));
  result.grad_norm = dist::NumberOf(outputs.grad_norm);
  return result;
}

// Returns the norm of the gradients.
Tensor Engine::UpdateParameters() {
  {
    const PhaseClock::Scope clock = TimePhase(Phase::kReduce);
    store_->FinishGradients();
  }
  const PhaseClock::Scope clock = TimePhase(Phase::kOptimizer);
  optim::ClipOptions clip;
  if (options_.max_grad_norm > 0) clip.max_norm = options_.max_grad_norm;
  if (scaler_) {
    clip.loss_scale = scaler_->scale();
    clip.found_inf = scaler_->found_inf();
  }
  const optim::ClipResult clipped = store_->Clip(clip);
  store_->Step(scaler_ ? scaler_->Inputs(clipped.factor)
                       : optim::StepInputs{.clip_factor = clipped.factor});
  if (scaler_) scaler_->Update();
  return clipped.norm;
}

// --- Captured steps ------------------------------------------------------------------------------

void Engine::CaptureSteps(int64_t micro_batches, const char* why_not, const RunLog* log) {
  const Device& device = model_.build().device;
  if (!CanRecordGraph(device)) return;
  const char* reason = nullptr;
  if (mesh_.world()->size() > 1) reason = "several ranks";
  if (const char* why = store_->WhyNotCaptured(micro_batches)) reason = why;
  if (pipeline_ != nullptr) reason = "a pipeline";
  if (activations_ != nullptr) reason = "off-loaded activations";
  if (options_.time_phases) reason = "wall_clock_breakdown is asked for";
  if (model_.has_hooks()) reason = "a module has hooks";
  if (why_not != nullptr) reason = why_not;
  if (reason != nullptr) {
    log->Info(Concat("steps are not captured as a CUDA graph: ", reason));
    return;
  }
  captured_ = std::make_unique<CapturedStep>(device, log);
}

void Engine::DropCapturedStep() {
  if (captured_ != nullptr) captured_->Drop();
}

// --- Checkpoints ---------------------------------------------------------------------------------

std::vector<dist::CheckpointTensor> Engine::Tensors() {
  std::vector<dist::CheckpointTensor> tensors = store_->CheckpointTensors();
  if (scaler_) {
    scaler_->VisitState([&](const std::string& name, const Tensor& t) {
      tensors.push_back({"scaler." + name, t, Placement::Whole(t.shape())});
    });
  }
  return tensors;
}

}  // namespace tessera::train
