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
#include "nlohmann/json.hpp"
#include "train/ranks/agreement.h"
#include "train/ranks/whole_model.h"
#include "train/report/step_report.h"
#include "train/run/data_order.h"
#include "train/run/loss_average.h"

namespace tessera::train {
namespace {

constexpr char kEngine[] = "engine";

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
      warnings_(std::move(setup.warnings)) {
  StepParts parts;
  parts.loss.run = criterion_;
  engine_ = std::make_unique<train::Engine>(*model_, mesh_, setup.options, std::move(parts));
  engine_->Start();
  loop_.emplace(engine_.get(), StepLoopOptions{.micro_batches = config_.accumulation_steps(),
                                               .rank = mesh_.data_rank(),
                                               .ranks = mesh_.data_ranks(),
                                               .seed = static_cast<uint64_t>(config_.seed),
                                               .label_smoothing = config_.label_smoothing,
                                               .neftune_noise_alpha = config_.neftune_noise_alpha});
  if (config_.cuda_graph) {
    engine_->CaptureSteps(config_.accumulation_steps(), nullptr, [](const std::string&) {});
  }
}

// --- A micro-batch at a time ---------------------------------------------------------------------

models::Bundle ConfiguredEngine::TrainingPass(const models::Bundle& batch, bool keep_logits) {
  TESSERA_CHECK(model_->stage() == nullptr, kEngine,
                "a pipeline takes whole steps: TrainBatch, or a booster's ExecutePipeline");
  return loop_->Forward(batch, learning_rate(), keep_logits);
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

void ConfiguredEngine::Step() {
  const std::optional<StepResult> done = loop_->EndMicroBatch();
  if (!done) return;
  const Status finite = Finish(*done);
  TESSERA_CHECK(finite.ok(), kEngine, Message(finite));
}

// Of a step that is over.
Status ConfiguredEngine::Finish(const StepResult& done) {
  const bool dealt_with = config_.scales_loss() || config_.on_non_finite != "stop";
  const bool fails = !done.updated && !dealt_with;
  loop_->Count(done, !fails);
  if (!fails) return OkStatus();
  return Agree(mesh_, Internal("step ", global_steps() + 1, ": the gradients are not finite; ",
                               "parameters are as they were (on_non_finite: skip would continue)"));
}

// --- A step at a time ----------------------------------------------------------------------------

StatusOr<double> ConfiguredEngine::TrainBatch(const NextBatch& next) {
  loop_->CheckBetweenSteps("TrainBatch");
  std::vector<models::Bundle> batches;
  // Of the model's own losses, which are sums over targets; a criterion's are means.
  std::vector<double> divisors;
  std::vector<double> loss_targets;
  const bool averages = criterion_ == nullptr && AveragesMicroBatches(config_, *model_);
  StepReport mine;
  Status status;
  for (int64_t m = 0; m < config_.accumulation_steps() && status.ok(); ++m) {
    StatusOr<data::Batch> batch = next();
    status = batch.status();
    if (!batch.ok()) break;
    const auto targets = static_cast<double>(batch->targets);
    loss_targets.push_back(targets);
    if (averages) divisors.push_back(targets > 0 ? targets : 1);
    mine.targets += averages && targets > 0 ? 1 : targets;
    batches.push_back(std::move(batch->tensors));
  }
  mine.failed = !status.ok();
  const StepReport all = ExchangeReports(mine, mesh_);
  if (all.failed) return Agree(mesh_, status);
  const auto count = static_cast<double>(config_.accumulation_steps() * mesh_.data_ranks());
  if (criterion_ == nullptr && !(all.targets > 0)) {
    return Agree(mesh_, InvalidArgument("step ", global_steps() + 1,
                                        ": no batch of it has targets ", "(data::Batch::targets)"));
  }
  const double divisor = criterion_ == nullptr ? all.targets : count;
  const WholeStep step = {
      .targets = divisor,
      .divisors = divisors,
      .loss_targets = loss_targets,
      .learning_rate = learning_rate(),
      .reduction = criterion_ == nullptr ? LossReduction::kSum : LossReduction::kMean};
  const StepResult done = loop_->OrAbandon([&] { return loop_->Step(batches, step); });
  TESSERA_RETURN_IF_ERROR(Finish(done));
  std::vector<double> losses = done.losses;
  for (size_t m = 0; m < divisors.size(); ++m) losses[m] /= divisors[m];
  double sum = 0;
  for (const double loss : GatherOverData(losses, mesh_)) sum += loss;
  return sum / divisor;
}

std::vector<double> ConfiguredEngine::RunPasses(const std::vector<models::Bundle>& batches,
                                                std::vector<models::Bundle>* outputs) {
  return loop_->RunPasses(batches, learning_rate(), outputs);
}

models::Bundle ConfiguredEngine::EvalBatch(const models::Bundle& batch) {
  const NoGrad no_grad;
  const AutocastScope autocast(engine_->products());
  engine_->ReleaseStepMemory();  // it is wanted
  return engine_->Forward(batch, loop_->OptionsOf(0, /*training=*/false));
}

std::unique_ptr<BatchLoader> ConfiguredEngine::MakeLoader(const data::Dataset& dataset) const {
  const data::Sampler order(DataOrder(config_, &dataset, mesh_));
  data::DataPosition begin = {.step = global_steps(), .samples = samples()};
  begin.epoch = begin.samples / order.samples_per_epoch();
  begin.index = begin.samples % order.samples_per_epoch();
  return std::make_unique<BatchLoader>(dataset, DataOrder(config_, &dataset, mesh_, begin), mesh_,
                                       global_steps());
}

int64_t ConfiguredEngine::samples() const {
  return loaded_samples_ + (global_steps() - loaded_step_) * samples_per_step();
}

int64_t ConfiguredEngine::samples_per_step() const {
  return config_.batch_size * config_.accumulation_steps() * mesh_.data_ranks();
}

double ConfiguredEngine::loss_scale() const {
  const optim::GradScaler* scaler = engine_->scaler();
  return scaler == nullptr ? 1 : dist::NumberOf(scaler->scale());
}

// --- Checkpoints ---------------------------------------------------------------------------------

Status ConfiguredEngine::Save(const std::string& path,
                              const std::vector<dist::CheckpointTensor>& tensors,
                              const nlohmann::json& client_state) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  TESSERA_RETURN_IF_ERROR(Agree(
      mesh_, mesh_.world()->rank() == 0 && !parent.empty() ? MakeDirectories(parent) : OkStatus()));
  const nlohmann::json trainer = {{"finite", true},
                                  {"samples", samples()},
                                  {"skipped_steps", skipped_steps()},
                                  {"client_state", client_state}};
  return Agree(mesh_, dist::SaveCheckpoint(path, global_steps(), tensors, trainer, *mesh_.world()));
}

Status ConfiguredEngine::Load(const dist::Checkpoint& checkpoint,
                              const std::vector<dist::CheckpointTensor>& tensors) {
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, checkpoint.Load(tensors, *mesh_.world())));
  engine_->Loaded();
  const nlohmann::json& trainer = checkpoint.trainer();
  const auto count = [&](const char* key, int64_t otherwise) {
    const bool has = trainer.is_object() && trainer.contains(key);
    return has && trainer[key].is_number_integer() ? trainer[key].get<int64_t>() : otherwise;
  };
  loop_->Restore(checkpoint.step(), count("skipped_steps", 0));
  loaded_step_ = global_steps();
  loaded_samples_ = count("samples", loaded_step_ * samples_per_step());
  return OkStatus();
}

Status ConfiguredEngine::SaveCheckpoint(const std::string& directory, const std::string& tag,
                                        const JsonMember& client_state) {
  loop_->CheckBetweenSteps("SaveCheckpoint");
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, CheckTag(tag, global_steps())));
  const std::string path =
      tag.empty() ? dist::CheckpointPath(directory, global_steps()) : JoinPath(directory, tag);
  return Save(path, engine_->Tensors(), client_state);
}

StatusOr<LoadedCheckpoint> ConfiguredEngine::LoadCheckpoint(const std::string& directory,
                                                            const std::string& tag) {
  AbandonStep();
  LoadedCheckpoint loaded;
  std::optional<dist::Checkpoint> checkpoint;
  if (tag.empty()) {
    TESSERA_ASSIGN_OR_RETURN(checkpoint, dist::FindNewestCheckpoint(
                                             directory, *mesh_.world(), [&](const std::string& w) {
                                               loaded.passed_over.push_back(w);
                                             }));
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
  loop_->CheckBetweenSteps("SaveModel");
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
  loop_->CheckBetweenSteps("SaveOptimizer");
  return Save(directory, States(), nlohmann::json::object());
}

Status ConfiguredEngine::LoadOptimizer(const std::string& directory) {
  AbandonStep();
  StatusOr<dist::Checkpoint> saved = dist::Checkpoint::Open(directory, *mesh_.world());
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, saved.status()));
  return Load(*saved, States());
}

}  // namespace tessera::train
