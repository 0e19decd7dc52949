// SPDX-License-Identifier: Apache-2.0
#include "train/loop/configured_engine.h"

#include <filesystem>
#include <utility>

#include "autograd/autocast.h"
#include "autograd/autograd.h"
#include "base/file.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/pipeline/executor.h"
#include "dist/pipeline/pipelined_model.h"
#include "models/hub/load_model.h"
#include "models/model_keys.h"
#include "train/ranks/agreement.h"
#include "train/ranks/whole_model.h"
#include "train/report/step_report.h"
#include "train/run/data_order.h"

namespace tessera::train {
namespace {

constexpr char kEngine[] = "engine";

// Runs a pass; where it throws, `undo` is run first.
template <typename Pass, typename Undo>
auto RunOrUndo(const Pass& pass, const Undo& undo) {
  try {
    return pass();
  } catch (...) {
    undo();
    throw;
  }
}

// A tag is the name of a directory, and none that another step's checkpoint would have.
Status CheckTag(const std::string& tag, int64_t step) {
  if (tag.find('/') != std::string::npos || tag == "." || tag == "..") {
    return InvalidArgument("tag '", tag, "' is not the name of a directory");
  }
  const std::string own =
      std::filesystem::path(dist::CheckpointPath(".", step)).filename().string();
  if (tag.starts_with("checkpoint-") && tag != own) {
    return InvalidArgument("tag '", tag,
                           "' is the name of another step's checkpoint; this one's is ", own);
  }
  return OkStatus();
}

}  // namespace

ConfiguredEngine::ConfiguredEngine(ConfiguredEngineSetup setup)
    : config_(std::move(setup.config)),
      mesh_(setup.mesh),
      owned_(std::move(setup.owned)),
      model_(setup.model),
      criterion_(std::move(setup.criterion)),
      learning_rate_(std::move(setup.learning_rate)),
      warnings_(std::move(setup.warnings)),
      micro_batches_(config_.accumulation_steps()) {
  StepParts parts;
  parts.loss.run = criterion_;
  engine_ = std::make_unique<train::Engine>(*model_, mesh_, setup.options, std::move(parts));
  engine_->Start();
  if (config_.cuda_graph) {
    engine_->CaptureSteps(config_.accumulation_steps(), nullptr, [](const std::string&) {});
  }
}

// --- A micro-batch at a time ---------------------------------------------------------------------

models::RunOptions ConfiguredEngine::OptionsOf(int64_t micro_batch, bool training) const {
  models::RunOptions options;
  options.context.training = training;
  options.label_smoothing = config_.label_smoothing;
  if (!training) return options;
  options.context.seed = static_cast<uint64_t>(config_.seed);
  options.context.step = static_cast<uint64_t>(steps_ + 1);
  options.context.micro_batch =
      static_cast<uint64_t>(mesh_.dp()->rank() * micro_batches_ + micro_batch);
  options.context.neftune_noise_alpha = config_.neftune_noise_alpha;
  return options;
}

void ConfiguredEngine::BeginStep(int64_t micro_batches) {
  micro_batches_ = micro_batches;
  engine_->BeginStep(micro_batches, learning_rate());
}

models::Bundle ConfiguredEngine::TrainingPass(const models::Bundle& batch, bool keep_logits) {
  TESSERA_CHECK(model_->stage() == nullptr, kEngine,
                "a pipeline takes whole steps: TrainBatch, or a booster's ExecutePipeline");
  TESSERA_CHECK(awaits_ == Awaits::kForward, kEngine, "the micro-batch before has had no ",
                awaits_ == Awaits::kBackward ? "Backward(loss)" : "Step()",
                "; AbandonStep() drops its step");
  return RunOrUndo(
      [&] {
        if (micro_batch_ == 0) BeginStep(config_.accumulation_steps());
        models::RunOptions options = OptionsOf(micro_batch_, /*training=*/true);
        options.keep_logits = keep_logits;
        models::Bundle outputs = engine_->RunForward(micro_batch_, batch, options);
        awaits_ = Awaits::kBackward;
        return outputs;
      },
      [&] { AbandonStep(); });
}

Tensor ConfiguredEngine::operator()(const models::Bundle& batch) {
  const models::Bundle outputs =
      GradEnabled() ? TrainingPass(batch, /*keep_logits=*/false) : EvalBatch(batch);
  if (!outputs.has(keys::kLoss) && GradEnabled()) AbandonStep();
  return outputs.at(keys::kLoss);
}

models::Bundle ConfiguredEngine::Forward(const models::Bundle& batch) {
  return GradEnabled() ? TrainingPass(batch, /*keep_logits=*/true) : EvalBatch(batch);
}

void ConfiguredEngine::Backward(const Tensor& loss) {
  TESSERA_CHECK(awaits_ != Awaits::kForward, kEngine,
                "Backward without a forward pass: engine(batch) comes first");
  TESSERA_CHECK(awaits_ == Awaits::kBackward, kEngine,
                "Backward was called for this micro-batch already: Step() comes next");
  TESSERA_CHECK(loss.defined() && loss.numel() == 1 && RequiresGrad(loss), kEngine,
                "Backward needs a loss of one element that is on the tape");
  const auto count = static_cast<double>(micro_batches_ * mesh_.dp()->size());
  RunOrUndo([&] { engine_->RunBackward(loss, 1.0 / count); }, [&] { AbandonStep(); });
  awaits_ = Awaits::kStep;
}

void ConfiguredEngine::Step() {
  TESSERA_CHECK(awaits_ == Awaits::kStep, kEngine, "Step without ",
                awaits_ == Awaits::kForward ? "a forward and a backward pass: engine(batch) and "
                                              "Backward(loss) come first"
                                            : "a backward pass: Backward(loss) comes first");
  awaits_ = Awaits::kForward;
  if (!IsGradientAccumulationBoundary()) {
    ++micro_batch_;
    return;
  }
  const StepResult done = RunOrUndo([&] { return engine_->FinishStep(); }, [&] { AbandonStep(); });
  const Status finite = Finish(done);
  TESSERA_CHECK(finite.ok(), kEngine, Message(finite));
}

void ConfiguredEngine::AbandonStep() {
  awaits_ = Awaits::kForward;
  micro_batch_ = 0;
  micro_batches_ = config_.accumulation_steps();
  engine_->AbandonStep();
}

// Of a step that is over.
Status ConfiguredEngine::Finish(const StepResult& done) {
  micro_batch_ = 0;
  micro_batches_ = config_.accumulation_steps();
  grad_norm_ = done.grad_norm;
  applied_ = done.updated;
  const bool dealt_with = config_.scales_loss() || config_.on_non_finite != "stop";
  if (!applied_ && !dealt_with) {
    return Agree(mesh_, Internal("step ", steps_ + 1, ": the gradients are not finite; parameters ",
                                 "are as they were (on_non_finite: skip would continue)"));
  }
  ++steps_;
  skipped_ += applied_ ? 0 : 1;
  return OkStatus();
}

// --- A step at a time ----------------------------------------------------------------------------

StatusOr<double> ConfiguredEngine::TrainBatch(const NextBatch& next) {
  CheckBetweenSteps("TrainBatch");
  std::vector<models::Bundle> batches;
  StepReport mine;
  Status status;
  for (int64_t m = 0; m < config_.accumulation_steps() && status.ok(); ++m) {
    StatusOr<data::Batch> batch = next();
    status = batch.status();
    if (!batch.ok()) break;
    mine.targets += static_cast<double>(batch->targets);
    batches.push_back(std::move(batch->tensors));
  }
  mine.failed = !status.ok();
  const StepReport all = ExchangeReports(mine, mesh_);
  if (all.failed) return Agree(mesh_, status);
  const auto count = static_cast<double>(config_.accumulation_steps() * mesh_.dp()->size());
  if (criterion_ == nullptr && !(all.targets > 0)) {
    return Agree(mesh_, InvalidArgument("step ", steps_ + 1, ": no batch of it has targets ",
                                        "(data::Batch::targets)"));
  }
  const double divisor = criterion_ == nullptr ? all.targets : count;
  const StepResult done =
      RunOrUndo([&] { return RunStep(batches, divisor); }, [&] { AbandonStep(); });
  TESSERA_RETURN_IF_ERROR(Finish(done));
  double sum = 0;
  for (const double loss : GatherOverData(done.losses, mesh_)) sum += loss;
  return sum / divisor;
}

// The model's own losses are sums over targets; a criterion's are means.
StepResult ConfiguredEngine::RunStep(const std::vector<models::Bundle>& batches, double targets) {
  return engine_->Step({.batches = batches,
                        .targets = targets,
                        .learning_rate = learning_rate(),
                        .number = static_cast<uint64_t>(steps_ + 1),
                        .options = [this](int64_t m) {
                          models::RunOptions options = OptionsOf(m, /*training=*/true);
                          if (criterion_ == nullptr) options.loss_reduction = LossReduction::kSum;
                          options.keep_logits = false;
                          return options;
                        }});
}

std::vector<double> ConfiguredEngine::RunPasses(const std::vector<models::Bundle>& batches,
                                                std::vector<models::Bundle>* outputs) {
  CheckBetweenSteps("RunPasses");
  TESSERA_CHECK(!batches.empty(), kEngine, "a step of no micro-batches");
  std::vector<double> losses = RunOrUndo(
      [&] {
        BeginStep(std::ssize(batches));
        const auto count = static_cast<double>(std::ssize(batches) * mesh_.dp()->size());
        return engine_->RunPasses({.batches = batches,
                                   .targets = count,
                                   .learning_rate = learning_rate(),
                                   .number = static_cast<uint64_t>(steps_ + 1),
                                   .options =
                                       [&](int64_t m) {
                                         models::RunOptions options = OptionsOf(m, true);
                                         options.keep_logits = outputs != nullptr;
                                         return options;
                                       },
                                   .outputs = outputs});
      },
      [&] { AbandonStep(); });
  micro_batch_ = micro_batches_ - 1;
  awaits_ = Awaits::kStep;
  return losses;
}

models::Bundle ConfiguredEngine::EvalBatch(const models::Bundle& batch) {
  const NoGrad no_grad;
  const AutocastScope autocast(engine_->products());
  engine_->ReleaseStepMemory();  // it is wanted
  return engine_->Forward(batch, OptionsOf(0, /*training=*/false));
}

std::unique_ptr<BatchLoader> ConfiguredEngine::MakeLoader(const data::Dataset& dataset) const {
  const data::Sampler order(DataOrder(config_, &dataset, mesh_));
  data::DataPosition begin = {.step = steps_, .samples = samples()};
  begin.epoch = begin.samples / order.samples_per_epoch();
  begin.index = begin.samples % order.samples_per_epoch();
  return std::make_unique<BatchLoader>(dataset, DataOrder(config_, &dataset, mesh_, begin), mesh_,
                                       steps_);
}

int64_t ConfiguredEngine::samples() const {
  return loaded_samples_ + (steps_ - loaded_step_) * samples_per_step();
}

int64_t ConfiguredEngine::samples_per_step() const {
  return config_.batch_size * config_.accumulation_steps() * mesh_.dp()->size();
}

double ConfiguredEngine::loss_scale() const {
  const optim::GradScaler* scaler = engine_->scaler();
  return scaler == nullptr ? 1 : dist::NumberOf(scaler->scale());
}

// --- Checkpoints ---------------------------------------------------------------------------------

void ConfiguredEngine::CheckBetweenSteps(const char* what) const {
  TESSERA_CHECK(awaits_ == Awaits::kForward && micro_batch_ == 0, kEngine, what,
                " in the midst of a step, which is at micro-batch ", micro_batch_ + 1, " of ",
                micro_batches_, ": Step() or AbandonStep() ends it");
}

Status ConfiguredEngine::Save(const std::string& path,
                              const std::vector<dist::CheckpointTensor>& tensors,
                              const nlohmann::json& client_state) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  TESSERA_RETURN_IF_ERROR(Agree(
      mesh_, mesh_.world()->rank() == 0 && !parent.empty() ? MakeDirectories(parent) : OkStatus()));
  const nlohmann::json trainer = {{"finite", true},
                                  {"samples", samples()},
                                  {"skipped_steps", skipped_},
                                  {"client_state", client_state}};
  return Agree(mesh_, dist::SaveCheckpoint(path, steps_, tensors, trainer, *mesh_.world()));
}

Status ConfiguredEngine::Load(const dist::Checkpoint& checkpoint,
                              const std::vector<dist::CheckpointTensor>& tensors) {
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, checkpoint.Load(tensors, *mesh_.world())));
  engine_->Loaded();
  steps_ = checkpoint.step();
  applied_ = false;
  const nlohmann::json& trainer = checkpoint.trainer();
  const auto count = [&](const char* key, int64_t otherwise) {
    const bool has = trainer.is_object() && trainer.contains(key);
    return has && trainer[key].is_number_integer() ? trainer[key].get<int64_t>() : otherwise;
  };
  skipped_ = count("skipped_steps", 0);
  loaded_step_ = steps_;
  loaded_samples_ = count("samples", steps_ * samples_per_step());
  return OkStatus();
}

Status ConfiguredEngine::SaveCheckpoint(const std::string& directory, const std::string& tag,
                                        const nlohmann::json& client_state) {
  CheckBetweenSteps("SaveCheckpoint");
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, CheckTag(tag, steps_)));
  const std::string path =
      tag.empty() ? dist::CheckpointPath(directory, steps_) : JoinPath(directory, tag);
  return Save(path, engine_->Tensors(), client_state);
}

StatusOr<LoadedCheckpoint> ConfiguredEngine::LoadCheckpoint(const std::string& directory,
                                                            const std::string& tag) {
  AbandonStep();
  LoadedCheckpoint loaded;
  std::optional<dist::Checkpoint> checkpoint;
  if (tag.empty()) {
    checkpoint = dist::FindNewestCheckpoint(
        directory, *mesh_.world(), [&](const std::string& w) { loaded.passed_over.push_back(w); });
    if (!checkpoint) return loaded;
  } else {
    StatusOr<dist::Checkpoint> named =
        dist::Checkpoint::Open(JoinPath(directory, tag), *mesh_.world());
    TESSERA_RETURN_IF_ERROR(Agree(mesh_, named.status()));
    checkpoint = *std::move(named);
  }
  TESSERA_RETURN_IF_ERROR(Load(*checkpoint, engine_->Tensors()));
  loaded.path = checkpoint->directory();
  const nlohmann::json& trainer = checkpoint->trainer();
  if (trainer.is_object() && trainer.contains("client_state")) {
    loaded.client_state = trainer["client_state"];
  }
  return loaded;
}

Status ConfiguredEngine::SaveModel(const std::string& folder, const data::Tokenizer* tokenizer) {
  CheckBetweenSteps("SaveModel");
  return SaveWholeModel(*model_, mesh_, engine_->store(), folder, tokenizer, {});
}

Status ConfiguredEngine::LoadModel(const std::string& folder) {
  AbandonStep();
  std::vector<models::Model*> parts = {model_};
  if (const dist::Stage* stage = model_->stage()) {
    parts.clear();
    for (const auto& chunk : stage->models()) parts.push_back(chunk.get());
  }
  Status status;
  {
    const dist::GatheredScope whole = engine_->store().Gather({}, dist::GatherFor::kWriting);
    for (models::Model* part : parts) {
      if (status.ok()) status = models::LoadWeights(*part, folder);
    }
  }
  engine_->store().Loaded(/*with_states=*/false);
  return Agree(mesh_, status);
}

// The tensors of a checkpoint that are no weights.
std::vector<dist::CheckpointTensor> ConfiguredEngine::States() {
  std::vector<dist::CheckpointTensor> tensors = engine_->Tensors();
  std::erase_if(tensors,
                [](const dist::CheckpointTensor& t) { return t.name.starts_with("model."); });
  return tensors;
}

Status ConfiguredEngine::SaveOptimizer(const std::string& directory) {
  CheckBetweenSteps("SaveOptimizer");
  return Save(directory, States(), nlohmann::json::object());
}

Status ConfiguredEngine::LoadOptimizer(const std::string& directory) {
  AbandonStep();
  StatusOr<dist::Checkpoint> saved = dist::Checkpoint::Open(directory, *mesh_.world());
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, saved.status()));
  return Load(*saved, States());
}

}  // namespace tessera::train
