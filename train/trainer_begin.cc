// How a run begins, afresh or from a checkpoint.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/file.h"
#include "optim/schedule.h"
#include "train/agreement.h"
#include "train/engine_options.h"
#include "train/metrics_log.h"
#include "train/trainer.h"

namespace tessera::train {
namespace {

// The learning rate that the configuration asks for.
StatusOr<std::function<double(int64_t, int64_t)>> LearningRateOf(const RunConfig& config,
                                                                 int64_t total_steps) {
  TESSERA_ASSIGN_OR_RETURN(const optim::Schedule schedule,
                           optim::MakeSchedule(config.schedule_of(total_steps)));
  return [schedule](int64_t step, int64_t) { return schedule.At(step); };
}

}  // namespace

Status Trainer::Begin(const TrainOptions& options) {
  log_ = OpenRunLog(config_, mesh_, options.output, options.host);
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, Prepare()));
  TESSERA_ASSIGN_OR_RETURN(const EngineOptions engine, EngineOptionsOf(config_, mesh_));
  engine_ = std::make_unique<Engine>(model_, mesh_, engine, parts_.step);
  engine_->Start();
  ResumeState resumed;
  if (options.resume || !options.resume_from.empty()) {
    TESSERA_ASSIGN_OR_RETURN(resumed, Resume(options));
  } else {
    TESSERA_RETURN_IF_ERROR(Agree(mesh_, mesh_.world()->rank() == 0 ? MakeRoom() : OkStatus()));
  }
  return Agree(mesh_, OpenReport(resumed));
}

// A run that begins afresh replaces nothing without being told to.
Status Trainer::MakeRoom() const {
  const std::string metrics = JoinPath(config_.out, "metrics.jsonl");
  const std::string model = JoinPath(config_.out, "model");
  const char* found = !checkpoints_.empty() ? "checkpoints"
                      : PathExists(metrics) ? "metrics.jsonl"
                      : PathExists(model)   ? "a folder 'model'"
                                            : nullptr;
  if (found == nullptr) return OkStatus();
  if (!config_.overwrite) {
    return InvalidArgument(config_.out, ": holds ", found,
                           " of an earlier run; give --resume to continue it, --overwrite to "
                           "begin afresh, or another --out");
  }
  for (const int64_t step : dist::ListCheckpoints(config_.out)) {
    TESSERA_RETURN_IF_ERROR(RemoveAll(dist::CheckpointPath(config_.out, step)));
  }
  TESSERA_RETURN_IF_ERROR(MetricsLog::Remove(config_.out));
  return RemoveAll(model);
}

int64_t Trainer::StepsToTake() const {
  if (config_.max_steps) return *config_.max_steps;
  const double samples = config_.epochs * static_cast<double>(data_.train->size());
  return std::max<int64_t>(
      1, sampler_.StepsFor(static_cast<int64_t>(std::ceil(samples)), mesh_.dp()->size()));
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
  learning_rate_ = parts_.learning_rate.run;
  if (learning_rate_ != nullptr) return OkStatus();
  TESSERA_ASSIGN_OR_RETURN(learning_rate_, LearningRateOf(config_, state_.total_steps));
  return OkStatus();
}

Status Trainer::OpenReport(const ResumeState& resumed) {
  TESSERA_ASSIGN_OR_RETURN(
      report_, RunReport::Open({.prints = mesh_.prints(),
                                .folder = config_.out,
                                .report_to = config_.report_to,
                                .step = state_.step,
                                .total_steps = state_.total_steps,
                                .steps_per_epoch = static_cast<double>(data_.train->size()) /
                                                   static_cast<double>(global_batch()),
                                .bar = config_.progress_bar,
                                .sums = {.loss = resumed.loss_sum, .steps = resumed.loss_steps},
                                .write = parts_.log.run},
                               log_));
  if (!mesh_.prints()) return OkStatus();
  return WriteFileAtomically(JoinPath(config_.out, "config.json"), config_.ToJson().dump(2) + "\n");
}

// What a checkpoint of now keeps.
ResumeState Trainer::StateNow() const {
  const StepSums sums = report_ == nullptr ? StepSums() : report_->sums();
  return {.finite = finite_,
          .loss_sum = sums.loss,
          .loss_steps = sums.steps,
          .data_samples = data_.train->size(),
          .global_batch = global_batch(),
          .config = nlohmann::json::parse(config_.ToJson().dump())};
}

StatusOr<ResumeState> Trainer::Resume(const TrainOptions& options) {
  std::optional<dist::Checkpoint> checkpoint;
  if (!options.resume_from.empty()) {
    TESSERA_ASSIGN_OR_RETURN(checkpoint, checkpoints_.Open(options.resume_from));
  } else {
    checkpoint = checkpoints_.FindNewest(log_);
  }
  if (!checkpoint) {
    log_.Info(Concat("no checkpoint in ", config_.out, ": starting afresh"));
    return ResumeState();
  }
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, checkpoint->Load(engine_->Tensors(), *mesh_.world())));
  engine_->Loaded();
  StatusOr<ResumeState> saved = ResumeState::Of(*checkpoint);
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, saved.status()));
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, saved->CheckData(StateNow(), checkpoint->directory())));
  for (const std::string& line : saved->ChangesTo(StateNow())) log_.Warning(line);
  state_.step = checkpoint->step();
  checkpoints_.GoesOnFrom(*checkpoint);
  log_.Info(Concat("resuming from ", checkpoint->directory(), " at step ", state_.step));
  if (options.resume_from.empty()) TESSERA_RETURN_IF_ERROR(checkpoints_.RemoveAfter(state_.step));
  return saved;
}

}  // namespace tessera::train
