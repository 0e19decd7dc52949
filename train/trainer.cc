#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "autograd/autograd.h"
#include "core/allocator.h"
#include "core/file.h"
#include "data/dataset/prefetching_loader.h"
#include "ops/elementwise/elementwise.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "optim/parameter_groups.h"
#include "optim/sgd.h"
#include "train/stop_signal.h"

namespace tessera::train {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Tensor AsTensor(const std::vector<int64_t>& values, const data::Batch& batch,
                const Device& device) {
  return CopyTo(Tensor::FromVector<int64_t>(values, {batch.rows, batch.seq_len}), device);
}

// Keys that say where a run lives and what it prints: a resumed run may change them silently.
bool ChangesNothing(const std::string& key) {
  static const char* const kKeys[] = {"out",          "data",          "model",
                                      "threads",      "log_interval",  "eval_interval",
                                      "eval_batches", "save_interval", "num_checkpoints",
                                      "time_limit",   "device",        "tokenizer",
                                      "val_data",     "deterministic", "checkpoint_activations"};
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

}  // namespace

std::vector<optim::Parameter> OptimizedParameters(models::Model& model) {
  std::vector<optim::Parameter> parameters;
  std::map<const nn::Parameter*, size_t> index;
  const std::vector<nn::Parameter*> all = model.Parameters();
  for (const nn::Parameter* p : all) {
    if (p->tied_to != nullptr || !RequiresGrad(p->tensor)) continue;
    index[p] = parameters.size();
    parameters.push_back({p->name, p->tensor, {}});
  }
  for (const nn::Parameter* p : all) {
    const auto source = index.find(p->tied_to);
    if (p->tied_to != nullptr && source != index.end()) {
      parameters[source->second].tied.push_back(p->tensor);
    }
  }
  return parameters;
}

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

Trainer::Trainer(const RunConfig& config, models::Model& model, Dataset train_data,
                 Dataset val_data)
    : config_(config),
      model_(model),
      train_data_(std::move(train_data)),
      val_data_(std::move(val_data)),
      sampler_({.num_samples = train_data_->size(),
                .batch_size = config.batch_size,
                .micro_batches = config.accumulation_steps(),
                .seed = static_cast<uint64_t>(config.seed),
                .shuffle = config.shuffle}),
      started_(Clock::now()) {}

int64_t Trainer::StepsToTake() const {
  if (config_.max_steps > 0) return config_.max_steps;
  const double samples = config_.epochs * static_cast<double>(train_data_->size());
  return std::max<int64_t>(1, sampler_.StepsFor(static_cast<int64_t>(std::ceil(samples)), 1));
}

std::unique_ptr<optim::Optimizer> Trainer::MakeOptimizer(
    std::vector<optim::ParameterGroup> groups) {
  if (config_.optimizer == "sgd") {
    return std::make_unique<optim::Sgd>(
        std::move(groups), optim::SgdOptions{.lr = config_.lr, .momentum = config_.momentum});
  }
  const optim::AdamOptions options{
      .lr = config_.lr, .beta1 = config_.betas[0], .beta2 = config_.betas[1], .eps = config_.eps};
  if (config_.optimizer == "adam") return std::make_unique<optim::Adam>(std::move(groups), options);
  return std::make_unique<optim::AdamW>(std::move(groups), options);
}

absl::StatusOr<data::Batch> Trainer::TrainBatch(int64_t number) {
  const int64_t micro_batches = config_.accumulation_steps();
  return data::MakeBatch(*train_data_, sampler_.Rows({.step = number / micro_batches,
                                                      .micro_batch = number % micro_batches}));
}

models::Bundle Trainer::ForwardStep(const models::Bundle& batch,
                                    const models::RunOptions& options) {
  return model_.Run(batch, options);
}

absl::Status Trainer::Log(const nlohmann::ordered_json& row) { return metrics_->Append(row); }

models::Bundle Trainer::ToBundle(const data::Batch& batch) const {
  const Device device = model_.build().device;
  models::Bundle bundle = {{"input_ids", AsTensor(batch.input_ids, batch, device)},
                           {"targets", AsTensor(batch.labels, batch, device)}};
  if (!batch.position_ids.empty()) {
    bundle.set("position_ids", AsTensor(batch.position_ids, batch, device));
  }
  if (!batch.document_ids.empty()) {
    bundle.set("document_ids",
               CastCopy(AsTensor(batch.document_ids, batch, device), DType::kInt32));
  }
  return bundle;
}

absl::Status Trainer::Begin(const TrainOptions& options) {
  output_ = options.output;
  TESSERA_RETURN_IF_ERROR(config_.Validate());
  TESSERA_RETURN_IF_ERROR(MakeDirectories(config_.out));
  TESSERA_RETURN_IF_ERROR(RemoveTemporaries(config_.out));
  parameters_ = OptimizedParameters(model_);
  optimizer_ =
      MakeOptimizer(optim::SplitByDecay(parameters_, {.weight_decay = config_.weight_decay}));
  if (config_.dtype == "float16")
    scaler_.emplace(optim::GradScalerOptions{}, model_.build().device);
  state_.total_steps = StepsToTake();
  TESSERA_ASSIGN_OR_RETURN(schedule_, optim::MakeSchedule({.kind = config_.lr_schedule,
                                                           .lr = config_.lr,
                                                           .min_lr = config_.final_lr(),
                                                           .warmup_steps = config_.warmup_steps,
                                                           .total_steps = state_.total_steps}));
  if (options.resume || !options.resume_from.empty()) {
    TESSERA_RETURN_IF_ERROR(Resume(options));
  } else if (!ListCheckpoints(config_.out).empty()) {
    return InvalidArgument(config_.out,
                           ": holds checkpoints of an earlier run; give --resume to continue it, "
                           "or another --out");
  }
  TESSERA_ASSIGN_OR_RETURN(MetricsLog log,
                           MetricsLog::Open(JoinPath(config_.out, "metrics.jsonl"), state_.step));
  metrics_ = std::make_unique<MetricsLog>(std::move(log));
  TESSERA_RETURN_IF_ERROR(
      WriteFileAtomically(JoinPath(config_.out, "config.json"), config_.ToJson().dump(2) + "\n"));
  progress_ = std::make_unique<Progress>(output_, state_.step, state_.total_steps);
  return absl::OkStatus();
}

absl::Status Trainer::Resume(const TrainOptions& options) {
  const auto say = [&](const std::string& text) {
    if (output_ != nullptr) std::fprintf(output_, "%s\n", text.c_str());
  };
  if (!options.resume_from.empty()) {
    TESSERA_ASSIGN_OR_RETURN(const Checkpoint named, Checkpoint::Open(options.resume_from));
    TESSERA_RETURN_IF_ERROR(LoadFrom(named));
    say(Concat("resuming from ", named.directory(), " at step ", state_.step));
    return absl::OkStatus();
  }
  const std::optional<Checkpoint> newest =
      FindNewestCheckpoint(config_.out, [&](const std::string& w) { say("warning: " + w); });
  if (!newest) {
    say(Concat("no checkpoint in ", config_.out, ": starting afresh"));
    return absl::OkStatus();
  }
  TESSERA_RETURN_IF_ERROR(LoadFrom(*newest));
  say(Concat("resuming from ", newest->directory(), " at step ", state_.step));
  // What lies behind is either damaged or about to be made again.
  for (const int64_t step : ListCheckpoints(config_.out)) {
    if (step > state_.step) TESSERA_RETURN_IF_ERROR(RemoveAll(CheckpointPath(config_.out, step)));
  }
  return absl::OkStatus();
}

absl::Status Trainer::LoadFrom(const Checkpoint& checkpoint) {
  TESSERA_RETURN_IF_ERROR(checkpoint.Load(CheckpointTensors()));
  const nlohmann::json& saved = checkpoint.trainer();
  if (!saved.is_object() || !saved.contains("loss_sum") || !saved["loss_sum"].is_number() ||
      !saved.contains("loss_steps") || !saved["loss_steps"].is_number_integer()) {
    return DataLoss(checkpoint.directory(), ": the trainer's state is missing");
  }
  state_.step = checkpoint.step();
  saved_step_ = checkpoint.step();
  loss_sum_ = saved["loss_sum"].get<double>();
  loss_steps_ = saved["loss_steps"].get<int64_t>();
  if (saved.contains("data_samples") && saved["data_samples"] != train_data_->size()) {
    return InvalidArgument(checkpoint.directory(), ": the run was trained on ",
                           saved["data_samples"].dump(), " samples; this data has ",
                           train_data_->size());
  }
  const nlohmann::json now = nlohmann::json::parse(config_.ToJson().dump());
  const nlohmann::json before = saved.value("config", nlohmann::json::object());
  for (const auto& [key, value] : now.items()) {
    if (ChangesNothing(key) || !before.contains(key) || before[key] == value) continue;
    if (output_ != nullptr) {
      std::fprintf(output_, "warning: %s is now %s; the checkpoint's run had %s\n", key.c_str(),
                   value.dump().c_str(), before[key].dump().c_str());
    }
  }
  return absl::OkStatus();
}

std::vector<CheckpointTensor> Trainer::CheckpointTensors() {
  std::vector<CheckpointTensor> tensors;
  std::map<std::string, Placement> placements;
  model_.VisitParameters([&](nn::Parameter& p) {
    if (p.tied_to != nullptr) return;
    placements[p.name] = p.placement;
    tensors.push_back({"model." + p.name, p.tensor.Detach(), p.placement});
  });
  optimizer_->VisitState([&](const std::string& parameter, const std::string& name,
                             const Tensor& t) {
    tensors.push_back({"optimizer." + optim::StateName(parameter, name), t,
                       parameter.empty() ? Placement::Whole(t.shape()) : placements.at(parameter)});
  });
  if (scaler_) {
    scaler_->VisitState([&](const std::string& name, const Tensor& t) {
      tensors.push_back({"scaler." + name, t, Placement::Whole(t.shape())});
    });
  }
  return tensors;
}

absl::StatusOr<TrainResult> Trainer::Train(const TrainOptions& options) {
  const StopSignals signals;
  TESSERA_RETURN_IF_ERROR(Begin(options));
  model_.Train();
  std::string stopped_by;
  {
    Loader loader(this, state_.step * config_.accumulation_steps());
    while (state_.step < state_.total_steps && stopped_by.empty()) {
      TESSERA_RETURN_IF_ERROR(RunStep(loader));
      TESSERA_RETURN_IF_ERROR(AfterStep());
      stopped_by = signals.received() != 0 ? StopSignals::Name(signals.received()) : ReasonToStop();
    }
  }
  if (state_.step >= state_.total_steps) stopped_by.clear();
  if (saved_step_ != state_.step) TESSERA_RETURN_IF_ERROR(Save());
  progress_.reset();
  return TrainResult{state_, stopped_by};
}

std::string Trainer::ReasonToStop() const {
  if (state_.should_stop) return "a callback";
  if (config_.time_limit > 0 && SecondsSince(started_) >= config_.time_limit) {
    return "the time limit";
  }
  return "";
}

absl::Status Trainer::RunStep(Loader& loader) {
  const Clock::time_point start = Clock::now();
  const auto step = static_cast<uint64_t>(state_.step + 1);
  // All micro-batches first: the loss is divided by the number of targets of the whole step.
  std::vector<data::Batch> batches;
  int64_t targets = 0;
  for (int64_t m = 0; m < config_.accumulation_steps(); ++m) {
    TESSERA_ASSIGN_OR_RETURN(data::Batch batch, loader.Next());
    targets += batch.num_targets();
    tokens_ += batch.rows * batch.seq_len;
    batches.push_back(std::move(batch));
  }
  double loss_sum = 0;
  for (size_t m = 0; m < batches.size(); ++m) {
    models::RunOptions options;
    options.context = {.seed = static_cast<uint64_t>(config_.seed),
                       .step = step,
                       .micro_batch = static_cast<uint64_t>(m)};
    options.loss_reduction = LossReduction::kSum;
    options.keep_logits = false;
    const Tensor loss = ForwardStep(ToBundle(batches[m]), options).at("loss");
    const Tensor share = Mul(loss, 1.0 / static_cast<double>(std::max<int64_t>(targets, 1)));
    Backward(scaler_ ? scaler_->ScaleLoss(share) : share);
    loss_sum += loss.Item();
  }
  state_.loss = loss_sum / static_cast<double>(std::max<int64_t>(targets, 1));

  optim::ClipOptions clip;
  if (config_.max_grad_norm > 0) clip.max_norm = config_.max_grad_norm;
  if (scaler_) {
    clip.loss_scale = scaler_->scale();
    clip.found_inf = scaler_->found_inf();
  }
  const optim::ClipResult clipped = optim::ClipGradNorm(parameters_, clip);
  state_.lr = schedule_->At(state_.step + 1);
  optimizer_->set_learning_rate(state_.lr);
  if (scaler_) {
    optimizer_->Step(scaler_->Inputs(clipped.factor));
    scaler_->Update();
  } else {
    optimizer_->Step({.clip_factor = clipped.factor});
  }
  optimizer_->ZeroGrad();
  state_.grad_norm = clipped.norm.Item();

  ++state_.step;
  state_.epoch = static_cast<double>(state_.step * sampler_.GlobalBatch(1)) /
                 static_cast<double>(train_data_->size());
  loss_sum_ += state_.loss;
  ++loss_steps_;
  seconds_ += SecondsSince(start);
  return absl::OkStatus();
}

absl::Status Trainer::AfterStep() {
  const auto due = [&](int64_t interval) { return interval > 0 && state_.step % interval == 0; };
  progress_->Step(state_.step, state_.loss);
  for (TrainerCallback* callback : callbacks_) callback->OnStep(state_);
  const bool last = state_.step == state_.total_steps;
  if (due(config_.log_interval) || last) TESSERA_RETURN_IF_ERROR(LogRow());
  if (val_data_ != nullptr && (due(config_.eval_interval) || last)) {
    TESSERA_RETURN_IF_ERROR(Evaluate());
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
  row["peak_bytes"] = Allocator::For(model_.build().device).stats().peak_bytes;
  TESSERA_RETURN_IF_ERROR(Log(row));
  progress_->Row(state_.step, loss, state_.lr, rate);
  loss_sum_ = 0;
  loss_steps_ = 0;
  tokens_ = 0;
  seconds_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<double> Trainer::EvaluateLoss(const data::TokenDataset& dataset,
                                             int64_t max_batches) {
  const NoGrad no_grad;
  const bool was_training = model_.training();
  model_.Eval();
  const data::Sampler order({.num_samples = dataset.size(),
                             .batch_size = config_.batch_size,
                             .shuffle = false,
                             .end_position = dataset.size()});
  const int64_t all = order.StepsFor(dataset.size(), 1);
  const int64_t batches = max_batches > 0 ? std::min(max_batches, all) : all;
  double sum = 0;
  int64_t targets = 0;
  absl::Status status;
  for (int64_t i = 0; i < batches && status.ok(); ++i) {
    const auto batch = data::MakeBatch(dataset, order.Rows({.step = i}));
    status = batch.status();
    if (!status.ok()) break;
    models::RunOptions options;
    options.loss_reduction = LossReduction::kSum;
    options.keep_logits = false;
    sum += ForwardStep(ToBundle(*batch), options).at("loss").Item();
    targets += batch->num_targets();
  }
  model_.Train(was_training);
  TESSERA_RETURN_IF_ERROR(status);
  return sum / static_cast<double>(std::max<int64_t>(targets, 1));
}

absl::Status Trainer::Evaluate() {
  TESSERA_ASSIGN_OR_RETURN(const double loss, EvaluateLoss(*val_data_, config_.eval_batches));
  state_.val_loss = loss;
  nlohmann::ordered_json row;
  row["step"] = state_.step;
  row["val_loss"] = loss;
  TESSERA_RETURN_IF_ERROR(Log(row));
  char text[96];
  std::snprintf(text, sizeof(text), "step %ld  val_loss %.4f", state_.step, loss);
  progress_->Message(text);
  for (TrainerCallback* callback : callbacks_) callback->OnEvaluate(state_);
  return absl::OkStatus();
}

absl::Status Trainer::Save() {
  const nlohmann::json trainer = {{"loss_sum", loss_sum_},
                                  {"loss_steps", loss_steps_},
                                  {"data_samples", train_data_->size()},
                                  {"config", config_.ToJson()}};
  const std::string path = CheckpointPath(config_.out, state_.step);
  TESSERA_RETURN_IF_ERROR(SaveCheckpoint(path, state_.step, CheckpointTensors(), trainer));
  saved_step_ = state_.step;
  TESSERA_RETURN_IF_ERROR(PruneCheckpoints(config_.out, config_.num_checkpoints));
  for (TrainerCallback* callback : callbacks_) callback->OnSave(state_, path);
  return absl::OkStatus();
}

}  // namespace tessera::train
