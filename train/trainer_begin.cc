// SPDX-License-Identifier: Apache-2.0
// How a run begins, afresh or from a checkpoint.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "nlohmann/json.hpp"
#include "optim/schedule.h"
#include "train/engine/engine_options.h"
#include "train/ranks/agreement.h"
#include "train/report/pipeline_timeline.h"
#include "train/run/data_digest.h"
#include "train/run/data_order.h"
#include "train/trainer_run.h"

namespace tessera::train {
namespace {

// The learning rate that the configuration asks for. `epoch_of` says which epoch, from 1, a step
// begins in, `skipped` how many updates before it loss scaling has left out: transformers' Trainer,
// DeepSpeed and Megatron-LM advance their schedules with updates alone, FlagAI and the loops of
// Colossal-AI with every step.
StatusOr<std::function<double(int64_t, int64_t)>> LearningRateOf(
    const RunConfig& config, int64_t total_steps,
    const std::function<int64_t(int64_t step)>& epoch_of, const std::function<int64_t()>& skipped) {
  const bool by_epoch = config.schedule_by_epoch;
  TESSERA_ASSIGN_OR_RETURN(
      const optim::Schedule schedule,
      optim::MakeSchedule(config.schedule_of(by_epoch ? epoch_of(total_steps) : total_steps)));
  const bool waits = schedule.config().counting == optim::ScheduleCounting::kTessera;
  return [schedule, by_epoch, waits, epoch_of, skipped](int64_t step, int64_t) {
    return schedule.At(by_epoch ? epoch_of(step) : step - (waits ? skipped() : 0));
  };
}

// Whether a checkpoint's folder lies in a run's.
bool IsIn(const std::string& out, const std::string& checkpoint) {
  std::error_code error;
  const std::filesystem::path parent =
      std::filesystem::weakly_canonical(checkpoint, error).parent_path();
  return std::filesystem::equivalent(parent, out, error);
}

// A folder that has the name of a checkpoint and is another system's, transformers' say. The run
// would take it for one of its own that is damaged, begin afresh, and remove it in time.
Status CheckNoOthersIn(const std::string& out) {
  for (const int64_t step : dist::ListCheckpoints(out)) {
    const std::string path = dist::CheckpointPath(out, step);
    const std::vector<std::string> names = ListDirectory(path).value_or(std::vector<std::string>());
    const bool own = names.empty() || std::ranges::any_of(names, [](const std::string& name) {
                       return name == "checkpoint.json" || name.starts_with("tensors-");
                     });
    if (own) continue;
    return InvalidArgument(path, ": is no checkpoint of this program, and a run in ", out,
                           " would replace it; give another --out, and the model's folder to begin "
                           "from its weights");
  }
  return OkStatus();
}

}  // namespace

Status Trainer::Run::Begin(const TrainOptions& options) {
  log_ = OpenRunLog(config_, mesh_, options.output, options.host);
  tokenizer_ = options.tokenizer;
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, Prepare()));
  TESSERA_RETURN_IF_ERROR(MakeEngine());
  elastic_ = options.elastic;
  if (elastic_ && elastic_->interval > 0) {
    memory_.emplace(dist::MemoryFolder{elastic_->folder, elastic_->host}, *mesh_.world());
  }
  if (mesh_.world()->rank() == 0) data_digest_ = DataDigest(config_.Sources());
  ResumeState resumed;
  const bool writes = mesh_.world()->rank() == 0;
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, writes ? CheckNoOthersIn(config_.out) : OkStatus()));
  const bool restarted = elastic_ && elastic_->restarted;
  if (options.resume || restarted || !options.resume_from.empty()) {
    // While the weights are those that the run began with.
    TESSERA_RETURN_IF_ERROR(JudgeByReference());
    TESSERA_ASSIGN_OR_RETURN(resumed, Resume(options));
  } else {
    TESSERA_RETURN_IF_ERROR(Agree(mesh_, writes ? MakeRoom() : OkStatus()));
    TESSERA_RETURN_IF_ERROR(JudgeByReference());
  }
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, OpenReport(resumed)));
  control_ = {};
  ranks_ask_ = GreatestOf(callbacks_.empty() ? 0 : 1, mesh_) != 0;
  Tell(&TrainerCallback::OnTrainBegin);
  return OkStatus();
}

Status Trainer::Run::MakeEngine() {
  TESSERA_ASSIGN_OR_RETURN(const EngineOptions engine, EngineOptionsOf(config_, mesh_));
  engine_ = std::make_unique<Engine>(model_, mesh_, engine, parts_.step);
  engine_->Start();
  loop_.emplace(engine_.get(), StepLoopOptions{.micro_batches = config_.accumulation_steps(),
                                               .rank = mesh_.data_rank(),
                                               .ranks = mesh_.data_ranks(),
                                               .seed = static_cast<uint64_t>(config_.seed),
                                               .label_smoothing = config_.label_smoothing,
                                               .neftune_noise_alpha = config_.neftune_noise_alpha,
                                               .class_weights = data_.objective.class_weights});
  loop_->Restore(state_.step, 0);
  return OkStatus();
}

// A run that begins afresh replaces nothing without being told to.
Status Trainer::Run::MakeRoom() const {
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
  TESSERA_RETURN_IF_ERROR(RunReport::Remove(config_.out));
  TESSERA_RETURN_IF_ERROR(RemovePipelineTimeline(config_.out));
  TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(config_.out, kDigests)));
  TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(config_.out, kBadStep)));
  TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(config_.out, kBadStep) + ".json"));
  return RemoveAll(model);
}

// What needs the number of samples, where it is not known.
Status Trainer::Run::CheckEpochs() const {
  const bool evaluates = data_.validation != nullptr && config_.eval_strategy != "no";
  if (evaluates && config_.eval_batches == 0 && data_.validation->size() == data::kUnknownSize) {
    return InvalidArgument(
        "eval_batches is missing: the validation data do not say how many samples they have");
  }
  if (data_.train->size() != data::kUnknownSize) {
    // Of a step that ends with its epoch, what the ranks take at a time (train/run/data_order.h).
    const int64_t least = config_.join_epochs ? sampler_.GlobalBatch(mesh_.data_ranks())
                                              : config_.batch_size * mesh_.data_ranks();
    if (!config_.drop_last || samples_per_epoch() >= least) return OkStatus();
    return InvalidArgument("drop_last leaves nothing to train on: at least ", least,
                           " samples are taken, the data have ", data_.train->size());
  }
  constexpr char kUnknown[] = "the training data do not say how many samples they have";
  if (!config_.max_steps) return InvalidArgument("max_steps is missing: ", kUnknown);
  for (const char* key : {"log_strategy", "eval_strategy", "save_strategy"}) {
    if (config_.Get(key) == "epoch") return InvalidArgument(key, " is epoch, but ", kUnknown);
  }
  if (!config_.schedule_by_epoch) return OkStatus();
  return InvalidArgument("schedule_by_epoch is set, but ", kUnknown);
}

// The order of the data from `begin` on, and how many steps the run takes. A step takes no sample
// twice: an epoch of fewer samples than the global batch is one step. A run by epochs ends with the
// last sample of them, and its last step may be short.
Status Trainer::Run::PlanSteps(const data::DataPosition& begin, int64_t length_group) {
  const int64_t ranks = mesh_.data_ranks();
  data::SamplerOptions order = DataOrder(config_, data_.train.get(), mesh_, begin, length_group);
  sampler_ = data::Sampler(order);
  order.samples_per_step = std::min(sampler_.GlobalBatch(ranks), sampler_.samples_per_epoch());
  if (!config_.max_steps) {
    order.end_position = std::max<int64_t>(1, sampler_.SamplesOf(config_.epochs, ranks));
  }
  sampler_ = data::Sampler(order);
  state_.total_steps =
      config_.max_steps ? *config_.max_steps : sampler_.StepsFor(order.end_position, ranks);
  learning_rate_ = parts_.learning_rate.run;
  if (learning_rate_ != nullptr) return OkStatus();
  const auto epoch_of = [sampler = sampler_, ranks](int64_t step) {
    return sampler.After(std::max(step - 1, sampler.options().begin.step), ranks).epoch + 1;
  };
  TESSERA_ASSIGN_OR_RETURN(learning_rate_, LearningRateOf(config_, state_.total_steps, epoch_of,
                                                          [this] { return state_.skipped_steps; }));
  return OkStatus();
}

// What needs no other rank.
Status Trainer::Run::Prepare() {
  TESSERA_RETURN_IF_ERROR(config_.Validate());
  TESSERA_RETURN_IF_ERROR(MakeDirectories(config_.out));
  if (mesh_.world()->rank() == 0) {
    TESSERA_RETURN_IF_ERROR(RunLock::Take(config_.out, &lock_));
    TESSERA_RETURN_IF_ERROR(RemoveTemporaries(config_.out));
    for (const int64_t step : dist::ListCheckpoints(config_.out)) {
      TESSERA_RETURN_IF_ERROR(RemoveTemporaries(dist::CheckpointPath(config_.out, step)));
    }
  }
  TESSERA_RETURN_IF_ERROR(PrepareSteps());
  return MakeCallbacks();
}

Status Trainer::Run::PrepareSteps() {
  if (mesh_.cp()->size() > 1 && ReadsWholeRows(parts_.step)) {
    return InvalidArgument("cp ", mesh_.cp()->size(), ": the loss of task '", config_.task,
                           "' reads whole rows, which are shared out over ranks");
  }
  if (mesh_.cp()->size() > 1 && model_.prefix(0).tokens > 0) {
    return InvalidArgument("cp ", mesh_.cp()->size(),
                           ": the keys of a prefix adapter are not shared out over ranks");
  }
  TESSERA_RETURN_IF_ERROR(CheckEpochs());
  return PlanSteps({}, /*length_group=*/0);
}

Status Trainer::Run::OpenReport(const ResumeState& resumed) {
  TESSERA_ASSIGN_OR_RETURN(
      report_, RunReport::Open({.prints = mesh_.prints(),
                                .folder = config_.out,
                                .report_to = config_.report_to,
                                .step = state_.step,
                                .total_steps = state_.total_steps,
                                .steps_per_epoch = sampler_.StepsPerEpoch(mesh_.data_ranks()),
                                .samples_per_step = samples_per_step(),
                                .position = sampler_.options().begin,
                                .evaluation_due = resumed.evaluation_due,
                                .epoch_end_due = resumed.epoch_end_due,
                                .bar = config_.progress_bar,
                                .sums = {.loss = resumed.loss_sum,
                                         .steps = resumed.loss_steps,
                                         .counts = resumed.loss_counts},
                                .epoch = EpochSums::Of(*resumed.epoch),
                                .write = parts_.log.run},
                               log_));
  if (!config_.trace.empty()) {
    TESSERA_ASSIGN_OR_RETURN(trace_, DigestTrace::Open(config_.out, *mesh_.world(), state_.step));
    TESSERA_RETURN_IF_ERROR(trace_->Begin(state_.step, engine_->Tensors()));
  }
  if (!mesh_.prints()) return OkStatus();
  return WriteFileAtomically(JoinPath(config_.out, "config.json"), config_.ToJson().dump(2) + "\n");
}

// What a checkpoint of now keeps.
ResumeState Trainer::Run::StateNow() const {
  const StepSums sums = report_ == nullptr ? StepSums() : report_->sums();
  return {.finite = finite_,
          .loss_sum = sums.loss,
          .loss_steps = sums.steps,
          .loss_counts = sums.counts,
          .state = ResumeState::StateToJson(state_),
          .total_steps = state_.total_steps,
          .epoch = report_ == nullptr ? JsonMember() : JsonMember(report_->epoch().ToJson()),
          .callbacks = CallbackStates(),
          .data_samples = data_.train->size(),
          .global_batch = sampler_.GlobalBatch(mesh_.data_ranks()),
          .position = sampler_.After(state_.step, mesh_.data_ranks()),
          .length_group = sampler_.options().length_group,
          .data_digest = data_digest_,
          .evaluation_due = evaluation_due_,
          .epoch_end_due = epoch_end_due_,
          .config = ParseJson(config_.ToJson().dump(), "the configuration").value()};
}

// The newest checkpoint of a run that started before is the hosts' or the disk's.
StatusOr<std::optional<dist::Checkpoint>> Trainer::Run::CheckpointToResume(
    const TrainOptions& options) {
  std::optional<dist::Checkpoint> checkpoint;
  const bool restarted = options.elastic && options.elastic->restarted;
  if (restarted && memory_) {
    TESSERA_ASSIGN_OR_RETURN(checkpoint, memory_->FindNewest());
  }
  if (!checkpoint || checkpoint->step() < NewestOnDisk()) {
    if (restarted || options.resume_from.empty()) {
      TESSERA_ASSIGN_OR_RETURN(std::optional<dist::Checkpoint> newest,
                               checkpoints_.FindNewest(log_));
      if (!checkpoint || (newest && newest->step() > checkpoint->step())) {
        checkpoint = std::move(newest);
      }
    }
    if (!checkpoint && !options.resume_from.empty()) {
      TESSERA_ASSIGN_OR_RETURN(checkpoint, checkpoints_.Open(options.resume_from, log_));
    }
  }
  if (memory_) {
    TESSERA_RETURN_IF_ERROR(memory_->RemoveAfter(checkpoint ? checkpoint->step() : -1));
  }
  return checkpoint;
}

int64_t Trainer::Run::NewestOnDisk() const {
  const std::vector<int64_t> steps = dist::ListCheckpoints(config_.out);
  return GreatestOf(steps.empty() ? -1 : steps.back(), mesh_);
}

StatusOr<ResumeState> Trainer::Run::Resume(const TrainOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const std::optional<dist::Checkpoint> checkpoint,
                           CheckpointToResume(options));
  if (!checkpoint) {
    log_.Info(Concat("no checkpoint in ", config_.out, ": starting afresh"));
    return ResumeState();
  }
  progress_.from_memory = options.elastic && IsIn(options.elastic->folder, checkpoint->directory());
  // Of another run's folder this one's `out` gets none of the files.
  const bool in_memory = GreatestOf(progress_.from_memory ? 1 : 0, mesh_) != 0;
  const bool is_own =
      in_memory || GreatestOf(IsIn(config_.out, checkpoint->directory()) ? 1 : 0, mesh_) != 0;
  const bool makes_room = mesh_.world()->rank() == 0 && !is_own;
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, makes_room ? MakeRoom() : OkStatus()));
  TESSERA_RETURN_IF_ERROR(LoadFrom(*checkpoint));
  StatusOr<ResumeState> saved = ResumeState::Of(*checkpoint);
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, saved.status()));
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, saved->CheckData(StateNow(), checkpoint->directory())));
  for (const std::string& line : saved->ChangesTo(StateNow())) log_.Warning(line);
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, RestoreCallbacks(*saved)));
  TESSERA_RETURN_IF_ERROR(FindBest());
  saved->RestoreState(&state_);
  state_.step = checkpoint->step();
  loop_->Restore(state_.step, 0);
  TESSERA_RETURN_IF_ERROR(
      PlanSteps(saved->PositionAt(state_.step, samples_per_epoch()), saved->length_group));
  ReadPosition();
  evaluation_due_ = saved->evaluation_due && validates();
  epoch_end_due_ = saved->epoch_end_due;
  amends_ = is_own && (evaluation_due_ || epoch_end_due_);
  checkpoints_.ContinueFrom(in_memory ? NewestOnDisk() : state_.step);
  log_.Info(Concat("resuming from ", checkpoint->directory(), " at step ", state_.step));
  if (is_own) TESSERA_RETURN_IF_ERROR(checkpoints_.RemoveAfter(state_.step));
  return saved;
}

// Weights, optimizer, loss scale, and what forward passes keep.
Status Trainer::Run::LoadFrom(const dist::Checkpoint& checkpoint) {
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, engine_->ExpectMems(checkpoint)));
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, checkpoint.Load(engine_->Tensors(), *mesh_.world())));
  engine_->Loaded();
  return OkStatus();
}

}  // namespace tessera::train
