// How a run begins, saves and goes on.
#include <utility>

#include "autograd/autograd.h"
#include "core/file.h"
#include "train/agreement.h"
#include "train/engine_options.h"
#include "train/trainer.h"

namespace tessera::train {

Status Trainer::Begin(const TrainOptions& options) {
  const bool speaks = mesh_.prints();
  log_ =
      RunLog(options.output, ParseLogLevel(speaks ? config_.log_level : config_.log_level_replica),
             speaks ? "" : Concat("[", mesh_.Describe(), "] "));
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, Prepare()));
  const StatusOr<EngineOptions> engine = EngineOptionsOf(config_, mesh_);
  TESSERA_RETURN_IF_ERROR(engine.status());
  engine_ = std::make_unique<Engine>(
      model_, mesh_, *engine,
      EngineParts{
          .forward = [this](const models::Bundle& batch,
                            const models::RunOptions& run) { return ForwardStep(batch, run); },
          .make_optimizer =
              [this](std::vector<optim::ParameterGroup> groups) {
                return MakeOptimizer(std::move(groups));
              }});
  engine_->Start();
  const bool resumes = options.resume || !options.resume_from.empty();
  if (resumes) {
    TESSERA_RETURN_IF_ERROR(Resume(options));
  } else if (!dist::ListCheckpoints(config_.out).empty()) {
    return Agree(mesh_,
                 InvalidArgument(config_.out,
                                 ": holds checkpoints of an earlier run; give --resume to continue "
                                 "it, or another --out"));
  }
  Status status;
  if (speaks) {
    auto log = MetricsLog::Open(JoinPath(config_.out, "metrics.jsonl"), state_.step);
    status = log.status();
    if (status.ok()) {
      metrics_ = std::make_unique<MetricsLog>(*std::move(log));
      status = WriteFileAtomically(JoinPath(config_.out, "config.json"),
                                   config_.ToJson().dump(2) + "\n");
    }
    progress_ = std::make_unique<Progress>(
        log_.progress(), state_.step, state_.total_steps,
        static_cast<double>(train_data_->size()) / static_cast<double>(global_batch()));
  }
  return Agree(mesh_, status);
}

// What needs no other rank.
Status Trainer::Prepare() {
  TESSERA_RETURN_IF_ERROR(config_.Validate());
  TESSERA_RETURN_IF_ERROR(MakeDirectories(config_.out));
  if (mesh_.world()->rank() == 0) {
    TESSERA_RETURN_IF_ERROR(RunLock::Take(config_.out, &lock_));
    TESSERA_RETURN_IF_ERROR(RemoveTemporaries(config_.out));
  }
  state_.total_steps = StepsToTake();
  TESSERA_ASSIGN_OR_RETURN(schedule_, optim::MakeSchedule({.kind = config_.lr_schedule,
                                                           .lr = config_.lr,
                                                           .min_lr = config_.final_lr(),
                                                           .warmup_steps = config_.warmup_steps,
                                                           .total_steps = state_.total_steps}));
  return OkStatus();
}

Status Trainer::Resume(const TrainOptions& options) {
  Communicator& world = *mesh_.world();
  if (!options.resume_from.empty()) {
    const auto named = dist::Checkpoint::Open(options.resume_from, world);
    TESSERA_RETURN_IF_ERROR(Agree(mesh_, named.status()));
    return LoadFrom(*named);
  }
  const std::optional<dist::Checkpoint> newest = dist::FindNewestCheckpoint(
      config_.out, world, [&](const std::string& w) { log_.Warning(w); });
  if (!newest) {
    log_.Info(Concat("no checkpoint in ", config_.out, ": starting afresh"));
    return OkStatus();
  }
  TESSERA_RETURN_IF_ERROR(LoadFrom(*newest));
  Status status;
  if (world.rank() == 0) {
    // What lies behind is either damaged or about to be made again.
    for (const int64_t step : dist::ListCheckpoints(config_.out)) {
      if (step <= state_.step || !status.ok()) continue;
      status = RemoveAll(dist::CheckpointPath(config_.out, step));
    }
  }
  return Agree(mesh_, status);
}

Status Trainer::LoadFrom(const dist::Checkpoint& checkpoint) {
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, checkpoint.Load(engine_->Tensors(), *mesh_.world())));
  engine_->Loaded();
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, ReadTrainerState(checkpoint)));
  log_.Info(Concat("resuming from ", checkpoint.directory(), " at step ", state_.step));
  return OkStatus();
}

Status Trainer::ReadTrainerState(const dist::Checkpoint& checkpoint) {
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
  WarnOfChanges(saved);
  return OkStatus();
}

void Trainer::WarnOfChanges(const nlohmann::json& saved) const {
  const nlohmann::json now = nlohmann::json::parse(config_.ToJson().dump());
  const nlohmann::json before = saved.value("config", nlohmann::json::object());
  for (const auto& [key, value] : now.items()) {
    const Option* option = FindRunConfigKey(key);
    const bool matters = option != nullptr && option->notes.changes_results;
    if (!matters || !before.contains(key) || before[key] == value) continue;
    log_.Warning(
        Concat(key, " is now ", value.dump(), "; the checkpoint's run had ", before[key].dump()));
  }
  if (saved.contains("global_batch") && saved["global_batch"] != global_batch()) {
    log_.Warning(Concat("a step now takes ", global_batch(), " samples; the checkpoint's run took ",
                        saved["global_batch"].dump()));
  }
}

Status Trainer::Save() {
  const nlohmann::json trainer = {{"loss_sum", loss_sum_},
                                  {"loss_steps", loss_steps_},
                                  {"data_samples", train_data_->size()},
                                  {"global_batch", global_batch()},
                                  {"config", config_.ToJson()}};
  TESSERA_RETURN_IF_ERROR(FinishSave());  // of the checkpoint before
  const std::string path = dist::CheckpointPath(config_.out, state_.step);
  Communicator& world = *mesh_.world();
  saved_step_ = state_.step;
  if (config_.async_save) {
    return Agree(mesh_, saver_.Begin(path, state_.step, engine_->Tensors(), trainer, world));
  }
  TESSERA_RETURN_IF_ERROR(
      Agree(mesh_, dist::SaveCheckpoint(path, state_.step, engine_->Tensors(), trainer, world)));
  return AfterSave();
}

Status Trainer::FinishSave() {
  if (!saver_.pending()) return OkStatus();
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, saver_.Commit(*mesh_.world())));
  return AfterSave();
}

// A checkpoint has appeared.
Status Trainer::AfterSave() {
  TESSERA_RETURN_IF_ERROR(
      Agree(mesh_, dist::PruneCheckpoints(config_.out, config_.num_checkpoints, *mesh_.world())));
  const std::string path = dist::CheckpointPath(config_.out, saved_step_);
  for (TrainerCallback* callback : callbacks_) callback->OnSave(state_, path);
  return OkStatus();
}

}  // namespace tessera::train
