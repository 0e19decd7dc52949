#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <typeinfo>
#include <utility>

#include "autograd/autocast.h"
#include "autograd/autograd.h"
#include "core/allocator.h"
#include "data/dataset/prefetching_loader.h"
#include "models/model_keys.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "train/agreement.h"
#include "train/step_profiler.h"
#include "train/whole_model.h"

namespace tessera::train {
namespace {

using Clock = std::chrono::steady_clock;

std::string Rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", value);
  return text;
}

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

// Micro-batches in order, made ahead on a thread of their own.
class Trainer::Loader {
 public:
  Loader(Trainer* trainer, int64_t first)
      : loader_([trainer](int64_t number) { return trainer->TrainBatch(number); },
                {.begin = first, .depth = 4}) {}
  absl::StatusOr<data::Batch> Next() {
    TESSERA_ASSIGN_OR_RETURN(std::optional<data::Batch> batch, loader_.Next());
    if (!batch) return Internal("the training data ended");
    return *std::move(batch);
  }

 private:
  data::PrefetchingLoader loader_;
};

// One step's micro-batches, and what all ranks told of theirs.
struct Trainer::StepBatches {
  absl::Status status;
  std::vector<data::Batch> batches;
  StepReport all;
};

Trainer::Trainer(const RunConfig& config, models::Model& model, const TaskData& data,
                 const dist::Mesh& mesh)
    : config_(config),
      model_(model),
      mesh_(mesh),
      train_data_(data.train),
      val_data_(data.validation),
      objective_(data.objective),
      files_(data.files),
      sampler_({.num_samples = train_data_ == nullptr ? 1 : train_data_->size(),
                .batch_size = config.batch_size,
                .micro_batches = config.accumulation_steps(),
                .seed = static_cast<uint64_t>(config.seed),
                .shuffle = config.shuffle}),
      started_(Clock::now()) {
  const absl::Status fits = config.ValidateFor(mesh.world()->size());
  if (config.offload_activations || config.partition_activations) {
    activations_ = std::make_unique<dist::ActivationStore>(dist::ActivationStoreOptions{
        .offload = config.offload_activations,
        .partition = config.partition_activations ? mesh.tp() : nullptr});
  }
  TESSERA_CHECK(fits.ok() && config.tp == mesh.tp()->size(), "trainer", Message(fits));
}

int64_t Trainer::StepsToTake() const {
  if (config_.max_steps) return *config_.max_steps;
  const double samples = config_.epochs * static_cast<double>(train_data_->size());
  return std::max<int64_t>(
      1, sampler_.StepsFor(static_cast<int64_t>(std::ceil(samples)), mesh_.dp()->size()));
}

std::unique_ptr<optim::Optimizer> Trainer::MakeOptimizer(
    std::vector<optim::ParameterGroup> groups) {
  const auto rule = config_.update_rule();
  TESSERA_CHECK(rule.ok(), "trainer", Message(rule.status()));
  return (*rule)->Make(std::move(groups), config_.lr);
}

absl::StatusOr<data::Batch> Trainer::TrainBatch(int64_t number) {
  const int64_t micro_batches = config_.accumulation_steps();
  return train_data_->MakeBatch(sampler_.Rows({.step = number / micro_batches,
                                               .micro_batch = number % micro_batches,
                                               .rank = mesh_.dp()->rank(),
                                               .world = mesh_.dp()->size()}));
}

models::Bundle Trainer::ForwardStep(const models::Bundle& batch,
                                    const models::RunOptions& options) {
  return model_.Run(batch, options);
}

absl::Status Trainer::SaveModel(const std::string& folder, const data::Tokenizer* tokenizer) {
  return SaveWholeModel(model_, mesh_, *store_, folder, tokenizer, files_);
}

absl::Status Trainer::Log(const nlohmann::ordered_json& row) { return metrics_->Append(row); }

models::Bundle Trainer::ToBundle(const data::Batch& batch) const {
  return OnDevice(batch.tensors, model_.build().device);
}

// --- The loop ------------------------------------------------------------------------------------

absl::StatusOr<TrainResult> Trainer::Train(const TrainOptions& options) {
  const StopSignals signals;
  signals_ = &signals;
  TESSERA_RETURN_IF_ERROR(Begin(options));
  begun_at_ = state_.step;
  model_.Train();
  CaptureSteps();
  int64_t stop = 0;
  {
    Loader loader(this, state_.step * config_.accumulation_steps());
    StepProfiler profiler(config_, mesh_.world()->rank(), &log_);
    while (state_.step < state_.total_steps) {
      profiler.StepBegins(state_.step - begun_at_);
      const Clock::time_point start = Clock::now();
      const StepBatches step = FetchStep(loader);
      if (step.all.failed) return Agree(mesh_, step.status);
      if (saver_.pending() && step.all.written) TESSERA_RETURN_IF_ERROR(FinishSave());
      stop = step.all.stop;
      if (stop != 0) break;
      RunStep(step);
      seconds_ += SecondsSince(start);
      TESSERA_RETURN_IF_ERROR(AfterStep());
    }
    profiler.Finish();
  }
  captured_ = nullptr;
  if (saved_step_ != state_.step) TESSERA_RETURN_IF_ERROR(Save());
  TESSERA_RETURN_IF_ERROR(FinishSave());
  progress_.reset();
  signals_ = nullptr;
  lock_.reset();
  return TrainResult{state_, StopReason(stop)};
}

void Trainer::DropCapturedStep() {
  if (captured_ != nullptr) captured_->Drop();
}

bool Trainer::StepsAreStatic() const { return typeid(*this) == typeid(Trainer); }

void Trainer::CaptureSteps() {
  const Device& device = model_.build().device;
  if (!config_.cuda_graph || !CanRecordGraph(device)) return;
  const char* reason = nullptr;
  if (mesh_.world()->size() > 1) reason = "several ranks";
  const char* store_reason = store_->WhyNotCaptured(config_.accumulation_steps());
  if (store_reason != nullptr) reason = store_reason;
  if (pipeline_ != nullptr) reason = "a pipeline";
  if (activations_ != nullptr) reason = "off-loaded activations";
  if (!config_.profile.empty()) reason = "a profile is asked for";
  if (config_.wall_clock_breakdown) reason = "wall_clock_breakdown is asked for";
  if (model_.has_hooks()) reason = "a module has hooks";
  if (!StepsAreStatic()) reason = "the trainer's steps may differ";
  if (reason != nullptr) {
    log_.Info(Concat("steps are not captured as a CUDA graph: ", reason));
    return;
  }
  captured_ = std::make_unique<CapturedStep>(device, &log_);
}

// Where phases are timed, each waits for the device.
PhaseClock::Scope Trainer::TimePhase(Phase phase) {
  const bool waits = config_.wall_clock_breakdown && !model_.build().device.is_cpu();
  return PhaseClock::Scope(&phases_, phase, waits ? &model_.build().device : nullptr);
}

int64_t Trainer::ReasonToStop() const {
  if (signals_->received() != 0) return signals_->received();
  if (state_.should_stop) return kStopCallback;
  if (state_.step == begun_at_) return 0;  // a limit that is too short still makes progress
  const bool late = config_.time_limit && SecondsSince(started_) >= *config_.time_limit;
  return late ? kStopTimeLimit : 0;
}

// All micro-batches first: the loss is divided by the number of targets of the whole step.
Trainer::StepBatches Trainer::FetchStep(Loader& loader) {
  const PhaseClock::Scope clock = TimePhase(Phase::kData);
  StepBatches step;
  StepReport mine = {.stop = ReasonToStop(), .written = saver_.written()};
  for (int64_t m = 0; m < config_.accumulation_steps() && step.status.ok(); ++m) {
    absl::StatusOr<data::Batch> batch = loader.Next();
    step.status = batch.status();
    if (!batch.ok()) break;
    mine.targets += WeightOf(*batch);
    mine.tokens += batch->tokens;
    step.batches.push_back(*std::move(batch));
  }
  mine.failed = !step.status.ok();
  step.all = ExchangeReports(mine, mesh_);
  return step;
}

models::RunOptions Trainer::OptionsFor(int64_t micro_batch) const {
  models::RunOptions options;
  options.context = {.seed = static_cast<uint64_t>(config_.seed),
                     .step = static_cast<uint64_t>(state_.step + 1),
                     .micro_batch = static_cast<uint64_t>(
                         mesh_.dp()->rank() * config_.accumulation_steps() + micro_batch),
                     .neftune_noise_alpha = config_.neftune_noise_alpha};
  options.loss_reduction = LossReduction::kSum;
  options.keep_logits = false;
  options.class_weights = objective_.class_weights;
  return options;
}

// Of float32 operands: `autocast`.
DType Trainer::product_dtype() const {
  return config_.autocast.empty() ? DType::kFloat32 : *ParseDType(config_.autocast);
}

// What a micro-batch's summed loss adds to the step's mean, scaled as mixed precision asks.
Tensor Trainer::ShareOf(const Tensor& loss, const Tensor& share) const {
  const Tensor part = Mul(loss, Cast(share, loss.dtype()));
  return scaler_ ? scaler_->ScaleLoss(part) : part;
}

// The loss of one micro-batch, summed over its targets; its gradient is left in the parameters.
Tensor Trainer::RunMicroBatch(const models::Bundle& batch, int64_t micro_batch,
                              const Tensor& share) {
  store_->BeginMicroBatch(micro_batch);
  Tensor loss;
  {
    const PhaseClock::Scope clock = TimePhase(Phase::kForward);
    const SavedTensorScope kept(activations_.get());
    const AutocastScope autocast(product_dtype());
    loss = ForwardStep(OnDevice(batch, model_.build().device), OptionsFor(micro_batch))
               .at(keys::kLoss);
  }
  const PhaseClock::Scope clock = TimePhase(Phase::kBackward);
  Backward(ShareOf(loss, share));
  return loss.Detach();
}

// The same for all micro-batches of a step, stage by stage; the losses are the last stage's.
std::vector<double> Trainer::RunPipeline(const StepInputs& inputs) {
  const PhaseClock::Scope clock = TimePhase(Phase::kPipeline);
  const SavedTensorScope kept(activations_.get());
  const AutocastScope autocast(product_dtype());
  std::vector<models::Bundle> bundles;
  for (const models::Bundle& batch : inputs.batches) {
    bundles.push_back(OnDevice(batch, model_.build().device));
  }
  const dist::StepResult result = pipeline_->Run(
      bundles, {.run_options = [&](int m) { return OptionsFor(m); },
                .scale_loss = [&](const Tensor& loss, int) { return ShareOf(loss, inputs.share); },
                .before_gradients = [&](int chunk, int m) { store_->BeginMicroBatch(m, chunk); }});
  return pipeline_->ShareLosses(result.losses);
}

// With neither clipping nor loss scaling nothing but the gradients goes into the update.
void Trainer::BeginGradients(int64_t micro_batches) {
  const bool known = config_.max_grad_norm == 0 && !scaler_;
  store_->BeginStep(micro_batches, known ? std::optional(optim::StepInputs{}) : std::nullopt);
}

// From the batches to the updated parameters, with nothing read from the device in between.
StepOutputs Trainer::ComputeStep(const StepInputs& inputs) {
  StepOutputs outputs;
  BeginGradients(std::ssize(inputs.batches));
  for (const models::Bundle& batch : inputs.batches) {
    outputs.losses.push_back(RunMicroBatch(batch, std::ssize(outputs.losses), inputs.share));
  }
  outputs.grad_norm = UpdateParameters();
  return outputs;
}

// The losses of this rank's micro-batches.
std::vector<double> Trainer::RunMicroBatches(const StepInputs& inputs) {
  std::vector<double> losses;
  Tensor norm;
  if (pipeline_ != nullptr) {
    BeginGradients(std::ssize(inputs.batches));
    losses = RunPipeline(inputs);
    norm = UpdateParameters();
  } else {
    const auto compute = [&](const StepInputs& in) { return ComputeStep(in); };
    const auto undo = [&] { store_->optimizer().ZeroGrad(); };
    const StepOutputs outputs =
        captured_ == nullptr
            ? ComputeStep(inputs)
            : captured_->Run(inputs, static_cast<uint64_t>(state_.step + 1), compute, undo);
    for (const Tensor& loss : outputs.losses) losses.push_back(loss.Item());
    norm = outputs.grad_norm;
  }
  state_.grad_norm = norm.Item();
  return losses;
}

void Trainer::RunStep(const StepBatches& step) {
  const double targets = step.all.targets > 0 ? step.all.targets : 1;
  StepInputs inputs;
  for (const data::Batch& batch : step.batches) inputs.batches.push_back(batch.tensors);
  inputs.share = Full({}, 1.0 / targets, DType::kFloat64, model_.build().device);
  state_.lr = schedule_->At(state_.step + 1);
  store_->optimizer().set_learning_rate(state_.lr);
  double loss_sum = 0;
  for (const double loss : GatherOverData(RunMicroBatches(inputs), mesh_)) loss_sum += loss;
  state_.loss = loss_sum / targets;
  ++state_.step;
  state_.epoch =
      static_cast<double>(state_.step * global_batch()) / static_cast<double>(train_data_->size());
  loss_sum_ += state_.loss;
  ++loss_steps_;
  tokens_ += step.all.tokens;
}

// Returns the norm of the gradients.
Tensor Trainer::UpdateParameters() {
  {
    const PhaseClock::Scope clock = TimePhase(Phase::kReduce);
    store_->FinishGradients();
  }
  const PhaseClock::Scope clock = TimePhase(Phase::kOptimizer);
  optim::ClipOptions clip;
  if (config_.max_grad_norm > 0) clip.max_norm = config_.max_grad_norm;
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

absl::Status Trainer::AfterStep() {
  const auto due = [&](int64_t interval) { return interval > 0 && state_.step % interval == 0; };
  if (progress_ != nullptr) progress_->Step(state_.step, state_.loss);
  for (TrainerCallback* callback : callbacks_) callback->OnStep(state_);
  const bool last = state_.step == state_.total_steps;
  if (due(config_.log_interval) || last) TESSERA_RETURN_IF_ERROR(LogRow());
  if (val_data_ != nullptr && (due(config_.eval_interval) || last)) {
    TESSERA_RETURN_IF_ERROR(EvaluateAndLog());
  }
  if (due(config_.save_interval)) TESSERA_RETURN_IF_ERROR(Save());
  return absl::OkStatus();
}

absl::Status Trainer::LogRow() {
  const double loss = loss_sum_ / static_cast<double>(std::max<int64_t>(loss_steps_, 1));
  const double rate = seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0.0;
  nlohmann::ordered_json row;
  row["step"] = state_.step;
  row["loss"] = loss;
  row["lr"] = state_.lr;
  row["grad_norm"] = state_.grad_norm;
  row["tokens_per_second"] = rate;
  row["peak_bytes"] = GreatestOf(Allocator::For(model_.build().device).stats().peak_bytes, mesh_);
  if (config_.wall_clock_breakdown) phases_.Report(loss_steps_, &row);
  if (mesh_.prints()) {
    TESSERA_RETURN_IF_ERROR(Log(row));
    progress_->Row(state_.step, loss, state_.lr, rate);
  }
  loss_sum_ = 0;
  loss_steps_ = 0;
  tokens_ = 0;
  seconds_ = 0;
  phases_.Reset();
  return absl::OkStatus();
}

// --- Evaluation ----------------------------------------------------------------------------------

absl::StatusOr<EvaluationResult> Trainer::Evaluate(const data::Dataset& dataset,
                                                   int64_t max_batches) {
  DropCapturedStep();  // its memory is wanted
  const NoGrad no_grad;
  const AutocastScope autocast(product_dtype());
  const bool was_training = model_.training();
  model_.Eval();
  const data::Sampler order({.num_samples = dataset.size(),
                             .batch_size = config_.batch_size,
                             .shuffle = false,
                             .end_position = dataset.size()});
  const int64_t all = order.StepsFor(dataset.size(), 1);
  const int64_t batches = max_batches > 0 ? std::min(max_batches, all) : all;
  const int64_t ranks = mesh_.dp()->size();
  const EvaluationMetrics* metrics = objective_.metrics.get();
  // The loss, what it is divided by, the counts of the metrics.
  std::vector<double> sums(2 + (metrics == nullptr ? 0 : metrics->num_counts()), 0.0);
  absl::Status status;
  for (int64_t round = 0; round * ranks < batches && status.ok(); ++round) {
    const int64_t number = round * ranks + mesh_.dp()->rank();
    absl::StatusOr<data::Batch> batch = data::Batch();
    const bool counts = number < batches;
    const bool runs = counts || (store_ != nullptr && store_->forward_is_collective());
    if (runs) {
      batch = dataset.MakeBatch(order.Rows({.step = std::min(number, batches - 1)}));
    }
    status = Agree(mesh_, batch.status());
    if (!status.ok()) break;
    absl::StatusOr<std::vector<double>> mine = std::vector<double>(sums.size(), 0.0);
    if (counts && batch->rows > 0) mine = EvaluateBatch(*batch);
    if (!counts && runs) ForwardStep(ToBundle(*batch), EvaluationOptions());
    status = Agree(mesh_, mine.status());
    if (!status.ok()) break;
    const std::vector<double> found = GatherOverData(*mine, mesh_);
    for (size_t i = 0; i < found.size(); ++i) sums[i % sums.size()] += found[i];
  }
  model_.Train(was_training);
  TESSERA_RETURN_IF_ERROR(status);
  EvaluationResult result = {.loss = sums[0] / (sums[1] > 0 ? sums[1] : 1)};
  if (metrics != nullptr) result.metrics = metrics->Finish({sums.begin() + 2, sums.end()});
  return result;
}

models::RunOptions Trainer::EvaluationOptions() const {
  models::RunOptions options;
  options.loss_reduction = LossReduction::kSum;
  options.keep_logits = objective_.metrics != nullptr && objective_.metrics->needs_logits();
  options.class_weights = objective_.class_weights;
  return options;
}

// What a batch adds to the sums of an evaluation.
absl::StatusOr<std::vector<double>> Trainer::EvaluateBatch(const data::Batch& batch) {
  const EvaluationMetrics* metrics = objective_.metrics.get();
  const models::Bundle outputs = ForwardStep(ToBundle(batch), EvaluationOptions());
  std::vector<double> mine = {outputs.at(keys::kLoss).Item(), WeightOf(batch)};
  if (metrics == nullptr) return mine;
  TESSERA_ASSIGN_OR_RETURN(const std::vector<double> counts,
                           metrics->Count(model_, batch, outputs));
  mine.insert(mine.end(), counts.begin(), counts.end());
  return mine;
}

// What the sum of a batch's losses is divided by: its targets, each with the weight of its class.
double Trainer::WeightOf(const data::Batch& batch) const {
  if (!objective_.class_weights.defined()) return static_cast<double>(batch.targets);
  const std::vector<float> weights = objective_.class_weights.ToVector<float>();
  double sum = 0;
  for (const int64_t label : batch.at(keys::kLabels).ToVector<int64_t>()) {
    if (label != data::kIgnoreLabel) sum += weights.at(static_cast<size_t>(label));
  }
  return sum;
}

absl::Status Trainer::EvaluateAndLog() {
  const AutocastScope autocast(product_dtype());
  TESSERA_ASSIGN_OR_RETURN(const EvaluationResult found,
                           Evaluate(*val_data_, config_.eval_batches));
  state_.val_loss = found.loss;
  state_.val_metrics = found.metrics;
  nlohmann::ordered_json row;
  row["step"] = state_.step;
  row["val_loss"] = found.loss;
  std::string text = Concat("step ", state_.step, "  val_loss ", Rounded(found.loss));
  for (const auto& [name, value] : found.metrics.items()) {
    row["val_" + name] = value;
    text += Concat("  ", name, " ", Rounded(value.get<double>()));
  }
  if (mesh_.prints()) {
    TESSERA_RETURN_IF_ERROR(Log(row));
    progress_->Message(text);
  }
  if (objective_.metrics != nullptr) {
    // Ranks that share a copy of the model write together; one of them shows it.
    for (const std::string& line : objective_.metrics->Samples(model_)) {
      if (mesh_.prints()) progress_->Message(line);
    }
  }
  for (TrainerCallback* callback : callbacks_) callback->OnEvaluate(state_);
  return absl::OkStatus();
}

}  // namespace tessera::train
