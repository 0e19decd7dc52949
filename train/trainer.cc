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
  StatusOr<data::Batch> Next() {
    TESSERA_ASSIGN_OR_RETURN(std::optional<data::Batch> batch, loader_.Next());
    if (!batch) return Internal("the training data ended");
    return *std::move(batch);
  }

 private:
  data::PrefetchingLoader loader_;
};

// One step's micro-batches, and what all ranks told of theirs.
struct Trainer::StepBatches {
  Status status;
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
  const Status fits = config.ValidateFor(mesh.world()->size());
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

StatusOr<data::Batch> Trainer::TrainBatch(int64_t number) {
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

Status Trainer::SaveModel(const std::string& folder, const data::Tokenizer* tokenizer) {
  return SaveWholeModel(model_, mesh_, engine_->store(), folder, tokenizer, files_);
}

Status Trainer::Log(const nlohmann::ordered_json& row) { return metrics_->Append(row); }

// --- The loop ------------------------------------------------------------------------------------

StatusOr<TrainResult> Trainer::Train(const TrainOptions& options) {
  const StopSignals signals;
  signals_ = &signals;
  TESSERA_RETURN_IF_ERROR(Begin(options));
  begun_at_ = state_.step;
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
  engine_->StopCapturing();
  if (saved_step_ != state_.step) TESSERA_RETURN_IF_ERROR(Save());
  TESSERA_RETURN_IF_ERROR(FinishSave());
  progress_.reset();
  signals_ = nullptr;
  lock_.reset();
  return TrainResult{state_, StopReason(stop)};
}

void Trainer::DropCapturedStep() {
  if (engine_ != nullptr) engine_->DropCapturedStep();
}

bool Trainer::StepsAreStatic() const { return typeid(*this) == typeid(Trainer); }

void Trainer::CaptureSteps() {
  if (!config_.cuda_graph) return;
  const char* why_not = nullptr;
  if (!config_.profile.empty()) why_not = "a profile is asked for";
  if (!StepsAreStatic()) why_not = "the trainer's steps may differ";
  engine_->CaptureSteps(config_.accumulation_steps(), why_not, &log_);
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
  const PhaseClock::Scope clock = engine_->TimePhase(Phase::kData);
  StepBatches step;
  StepReport mine = {.stop = ReasonToStop(), .written = saver_.written()};
  for (int64_t m = 0; m < config_.accumulation_steps() && step.status.ok(); ++m) {
    StatusOr<data::Batch> batch = loader.Next();
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
  options.context = {.training = true,
                     .seed = static_cast<uint64_t>(config_.seed),
                     .step = static_cast<uint64_t>(state_.step + 1),
                     .micro_batch = static_cast<uint64_t>(
                         mesh_.dp()->rank() * config_.accumulation_steps() + micro_batch),
                     .neftune_noise_alpha = config_.neftune_noise_alpha};
  options.loss_reduction = LossReduction::kSum;
  options.keep_logits = false;
  options.class_weights = objective_.class_weights;
  return options;
}

void Trainer::RunStep(const StepBatches& step) {
  const double targets = step.all.targets > 0 ? step.all.targets : 1;
  std::vector<models::Bundle> batches;
  for (const data::Batch& batch : step.batches) batches.push_back(batch.tensors);
  state_.lr = schedule_->At(state_.step + 1);
  const StepResult done = engine_->Step({.batches = batches,
                                         .targets = targets,
                                         .learning_rate = state_.lr,
                                         .number = static_cast<uint64_t>(state_.step + 1),
                                         .options = [this](int64_t m) { return OptionsFor(m); }});
  state_.grad_norm = done.grad_norm;
  double loss_sum = 0;
  for (const double loss : GatherOverData(done.losses, mesh_)) loss_sum += loss;
  state_.loss = loss_sum / targets;
  ++state_.step;
  state_.epoch =
      static_cast<double>(state_.step * global_batch()) / static_cast<double>(train_data_->size());
  loss_sum_ += state_.loss;
  ++loss_steps_;
  tokens_ += step.all.tokens;
}

Status Trainer::AfterStep() {
  const auto due = [&](int64_t interval) { return interval > 0 && state_.step % interval == 0; };
  if (progress_ != nullptr) progress_->Step(state_.step, state_.loss);
  for (TrainerCallback* callback : callbacks_) callback->OnStep(state_);
  const bool last = state_.step == state_.total_steps;
  if (due(config_.log_interval) || last) TESSERA_RETURN_IF_ERROR(LogRow());
  if (val_data_ != nullptr && (due(config_.eval_interval) || last)) {
    TESSERA_RETURN_IF_ERROR(EvaluateAndLog());
  }
  if (due(config_.save_interval)) TESSERA_RETURN_IF_ERROR(Save());
  return OkStatus();
}

Status Trainer::LogRow() {
  const double loss = loss_sum_ / static_cast<double>(std::max<int64_t>(loss_steps_, 1));
  const double rate = seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0.0;
  nlohmann::ordered_json row;
  row["step"] = state_.step;
  row["loss"] = loss;
  row["lr"] = state_.lr;
  row["grad_norm"] = state_.grad_norm;
  row["tokens_per_second"] = rate;
  row["peak_bytes"] = GreatestOf(Allocator::For(model_.build().device).stats().peak_bytes, mesh_);
  if (config_.wall_clock_breakdown) engine_->phases().Report(loss_steps_, &row);
  if (mesh_.prints()) {
    TESSERA_RETURN_IF_ERROR(Log(row));
    progress_->Row(state_.step, loss, state_.lr, rate);
  }
  loss_sum_ = 0;
  loss_steps_ = 0;
  tokens_ = 0;
  seconds_ = 0;
  engine_->phases().Reset();
  return OkStatus();
}

// --- Evaluation ----------------------------------------------------------------------------------

StatusOr<EvaluationResult> Trainer::Evaluate(const data::Dataset& dataset, int64_t max_batches) {
  DropCapturedStep();  // its memory is wanted
  const NoGrad no_grad;
  const AutocastScope autocast(config_.product_dtype());
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
  Status status;
  for (int64_t round = 0; round * ranks < batches && status.ok(); ++round) {
    const int64_t number = round * ranks + mesh_.dp()->rank();
    StatusOr<data::Batch> batch = data::Batch();
    const bool counts = number < batches;
    const bool runs = counts || (engine_ != nullptr && engine_->store().forward_is_collective());
    if (runs) {
      batch = dataset.MakeBatch(order.Rows({.step = std::min(number, batches - 1)}));
    }
    status = Agree(mesh_, batch.status());
    if (!status.ok()) break;
    StatusOr<std::vector<double>> mine = std::vector<double>(sums.size(), 0.0);
    if (counts && batch->rows > 0) mine = EvaluateBatch(*batch);
    if (!counts && runs)
      ForwardStep(OnDevice(batch->tensors, model_.build().device), EvaluationOptions());
    status = Agree(mesh_, mine.status());
    if (!status.ok()) break;
    const std::vector<double> found = GatherOverData(*mine, mesh_);
    for (size_t i = 0; i < found.size(); ++i) sums[i % sums.size()] += found[i];
  }
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
StatusOr<std::vector<double>> Trainer::EvaluateBatch(const data::Batch& batch) {
  const EvaluationMetrics* metrics = objective_.metrics.get();
  const models::Bundle outputs =
      ForwardStep(OnDevice(batch.tensors, model_.build().device), EvaluationOptions());
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

Status Trainer::EvaluateAndLog() {
  const AutocastScope autocast(config_.product_dtype());
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
  return OkStatus();
}

}  // namespace tessera::train
