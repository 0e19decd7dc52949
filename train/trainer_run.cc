// SPDX-License-Identifier: Apache-2.0
#include "train/trainer_run.h"

#include <utility>

#include "autograd/autocast.h"
#include "core/allocator.h"
#include "core/profiler.h"
#include "data/dataset/prefetching_loader.h"
#include "dist/comm/waited.h"
#include "dist/pipeline/executor.h"
#include "nlohmann/json.hpp"
#include "train/engine/phase_clock.h"
#include "train/ranks/agreement.h"
#include "train/ranks/whole_model.h"
#include "train/report/pipeline_timeline.h"
#include "train/report/step_profiler.h"
#include "train/run/data_order.h"
#include "train/run/loss_average.h"
#include "train/run/run_adapter.h"

namespace tessera::train {
namespace {

using Clock = std::chrono::steady_clock;

// With the task's own loss, unless the program has one.
TrainerParts WithLossOf(const Objective& objective, TrainerParts parts) {
  StepParts& step = parts.step;
  if (objective.loss_of_tokens.run == nullptr || step.loss_of_tokens.run != nullptr) return parts;
  step.loss_reads.insert(step.loss_reads.end(), objective.loss_reads.begin(),
                         objective.loss_reads.end());
  if (step.loss.run == nullptr) step.loss_of_tokens = objective.loss_of_tokens;
  return parts;
}

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

// Micro-batches in order, made ahead on a thread of their own.
class Trainer::Run::Loader {
 public:
  Loader(Run* run, int64_t first)
      : loader_([run](int64_t number) { return run->TrainBatch(number); },
                {.begin = first,
                 .end = run->state_.total_steps * run->config_.accumulation_steps(),
                 .depth = kBatchesAhead}) {}
  StatusOr<data::Batch> Next() {
    TESSERA_ASSIGN_OR_RETURN(std::optional<data::Batch> batch, loader_.Next());
    if (!batch) return Internal("the training data ended");
    return *std::move(batch);
  }

 private:
  data::PrefetchingLoader loader_;
};

Trainer::Run::Run(const RunConfig& config, models::Model& model, const TaskData& data,
                  const dist::Mesh& mesh, TrainerParts parts)
    : config_(config),
      model_(model),
      mesh_(mesh),
      data_(data),
      averages_micro_batches_(AveragesMicroBatches(config, model)),
      parts_(WithLossOf(data.objective, std::move(parts))),
      sampler_(DataOrder(config, data.train.get(), mesh)),
      checkpoints_(
          {.folder = config.out, .keep = config.num_checkpoints, .async = config.async_save}, mesh),
      started_(Clock::now()) {
  const Status fits = config.ValidateFor(mesh.world()->size());
  TESSERA_CHECK(fits.ok(), "trainer", Message(fits));
  TESSERA_CHECK(config.tp == mesh.tp()->size() && config.pp == mesh.pp()->size() &&
                    config.cp == mesh.cp()->size() && config.ep == mesh.ep()->size(),
                "trainer", "the mesh is not the configuration's: tp ", mesh.tp()->size(), ", pp ",
                mesh.pp()->size(), ", cp ", mesh.cp()->size(), ", ep ", mesh.ep()->size());
}

StatusOr<data::Batch> Trainer::Run::TrainBatch(int64_t number) const {
  const int64_t micro_batches = config_.accumulation_steps();
  const data::BatchPlace place = {.step = number / micro_batches,
                                  .micro_batch = number % micro_batches,
                                  .rank = mesh_.data_rank(),
                                  .world = mesh_.data_ranks()};
  if (parts_.train_batch.run != nullptr) return parts_.train_batch.run(place);
  const std::vector<data::Sample> rows = sampler_.Rows(place);
  if (!rows.empty()) return data_.train->MakeBatch(rows);
  // Of a short step, one that others have filled: it runs along with the step's first sample.
  const data::BatchPlace first = {.step = place.step, .world = place.world};
  TESSERA_ASSIGN_OR_RETURN(data::Batch batch,
                           data_.train->MakeBatch({{sampler_.Rows(first).front()}}));
  batch.rows = batch.tokens = batch.targets = 0;
  return batch;
}

Status Trainer::Run::SaveModel(const std::string& folder, const data::Tokenizer* tokenizer) {
  if (config_.adapter.empty()) {
    return SaveWholeModel(model_, mesh_, engine_->store(), folder, tokenizer, data_.files);
  }
  TESSERA_ASSIGN_OR_RETURN(const models::AdapterConfig adapter,
                           AdapterOf(config_, model_, data_.replaces_head));
  return SaveWholeAdapter(model_, adapter, mesh_, engine_->store(), folder);
}

void Trainer::Run::ReleaseStepMemory() {
  if (engine_ != nullptr) engine_->ReleaseStepMemory();
}

// --- The loop ------------------------------------------------------------------------------------

StatusOr<TrainResult> Trainer::Run::Train(const TrainOptions& options) {
  const StopSignals signals;
  signals_ = &signals;
  TESSERA_RETURN_IF_ERROR(Begin(options));
  begun_at_ = state_.step;
  if (config_.scales_loss() && engine_->scaler() != nullptr) {
    state_.loss_scale = dist::NumberOf(engine_->scaler()->scale());
  }
  if (config_.cuda_graph) {
    engine_->CaptureSteps(config_.accumulation_steps(),
                          !config_.profile.empty() || config_.profile_summary
                              ? "a profile is asked for"
                          : !config_.trace.empty() ? "digests are traced"
                                                   : nullptr,
                          [this](const std::string& line) { log_.Info(line); });
  }
  int64_t stop = 0;
  if (evaluation_due_ || epoch_end_due_) TESSERA_RETURN_IF_ERROR(FinishAfterStep({}));
  if (!interrupted_) {
    Loader loader(this, state_.step * config_.accumulation_steps());
    StepProfiler profiler(config_, mesh_.world()->rank(), model_.build().device, &log_);
    while (state_.step < state_.total_steps) {
      profiler.StepBegins(state_.step - begun_at_);
      const Clock::time_point start = Clock::now();
      const StepBatches step = FetchStep([&] { return loader.Next(); });
      if (step.all.failed) return Agree(mesh_, step.status);
      if (checkpoints_.pending() && step.all.written) {
        TESSERA_RETURN_IF_ERROR(AfterSave(checkpoints_.Finish()));
      }
      stop = step.all.stop;
      if (stop != 0) break;
      if (state_.step == 0 || EndsEpoch(state_.step)) Tell(&TrainerCallback::OnEpochBegin);
      Tell(&TrainerCallback::OnStepBegin);
      const StepResult done = RunStep(step);
      const std::vector<double> counts = CountsOfStep(done);
      TESSERA_RETURN_IF_ERROR(TraceStep(step));
      TESSERA_RETURN_IF_ERROR(CheckStep(step, done));
      state_.tokens = step.all.tokens;
      state_.seconds = SecondsSince(start);
      report_->AddStep(state_, counts);
      TESSERA_RETURN_IF_ERROR(AfterStep());
      if (interrupted_) break;
      TESSERA_RETURN_IF_ERROR(AfterElasticStep());
    }
    profiler.Finish();
  }
  if (interrupted_) stop = GreatestOf(Interruption(), mesh_);
  engine_->ReleaseStepMemory();
  TESSERA_RETURN_IF_ERROR(FinalSave());
  WarnOfStepsInVain();
  TrainResult result;
  result.state = state_;
  result.stopped_by = StopReason(stop);
  if (stop == kStopCallback) {
    result.ended_by = std::exchange(result.stopped_by, "");
    if (!control_.reason.empty()) result.ended_by = control_.reason;
  }
  if (result.stopped_by.empty()) {
    TESSERA_ASSIGN_OR_RETURN(result.best_model, RestoreBest());
    for (TrainerCallback* callback : called_) callback->OnTrainEnd(state_);
  }
  report_.reset();
  signals_ = nullptr;
  lock_.reset();
  return result;
}

// A callback lets an evaluation that is due be finished; who waits for the process does not.
int64_t Trainer::Run::ReasonToStop() const {
  const int64_t interruption = Interruption();
  return interruption == 0 && control_.stop ? kStopCallback : interruption;
}

int64_t Trainer::Run::Interruption() const {
  if (signals_ == nullptr) return 0;
  if (signals_->received() != 0) return signals_->received();
  if (state_.step == begun_at_) return 0;  // a limit that is too short still makes progress
  const bool late = config_.time_limit && SecondsSince(started_) >= *config_.time_limit;
  return late ? kStopTimeLimit : 0;
}

// All micro-batches first: the loss is divided by the number of targets of the whole step, or of
// its micro-batches.
Trainer::Run::StepBatches Trainer::Run::FetchStep(const NextBatch& next) {
  const PhaseClock::Scope clock(&engine_->phases(), Phase::kData);
  StepBatches step;
  StepReport mine = {.stop = ReasonToStop(), .written = checkpoints_.written()};
  for (int64_t m = 0; m < config_.accumulation_steps() && step.status.ok(); ++m) {
    StatusOr<data::Batch> batch = next();
    step.status = batch.status();
    if (!batch.ok()) break;
    const double targets = data_.objective.TargetsOf(*batch);
    step.targets.push_back(targets);
    if (averages_micro_batches_) step.divisors.push_back(targets > 0 ? targets : 1);
    mine.targets += averages_micro_batches_ && targets > 0 ? 1 : targets;
    mine.tokens += batch->tokens;
    step.batches.push_back(*std::move(batch));
  }
  mine.failed = !step.status.ok();
  step.all = ExchangeReports(mine, mesh_);
  return step;
}

// A dry run writes nothing, but agrees likewise.
Status Trainer::Run::TraceStep(const StepBatches& step) {
  if (config_.trace.empty()) return OkStatus();
  Status written;
  if (trace_ != nullptr) {
    written = trace_->Write({.step = state_.step,
                             .loss = state_.loss,
                             .grad_norm = state_.grad_norm,
                             .first_micro_batch = mesh_.data_rank() * config_.accumulation_steps(),
                             .batches = BundlesOf(step),
                             .tensors = engine_->Tensors()});
  }
  return Agree(mesh_, written);
}

std::vector<models::Bundle> Trainer::Run::BundlesOf(const StepBatches& step) const {
  std::vector<models::Bundle> bundles;
  for (const data::Batch& batch : step.batches) bundles.push_back(batch.tensors);
  return bundles;
}

WholeStep Trainer::Run::WholeStepOf(const StepBatches& step) const {
  WholeStep whole = {.targets = step.all.targets > 0 ? step.all.targets : 1,
                     .divisors = step.divisors,
                     .loss_targets = step.targets,
                     .learning_rate = state_.lr,
                     .filled = 0};
  for (size_t m = 0; m < step.batches.size(); ++m) {
    const data::Batch& batch = step.batches[m];
    if (batch.rows > 0 || batch.targets > 0) whole.filled = static_cast<int64_t>(m) + 1;
  }
  return whole;
}

StepResult Trainer::Run::RunStep(const StepBatches& step) {
  state_.lr = learning_rate_(state_.step + 1, state_.total_steps);
  const WholeStep whole = WholeStepOf(step);
  const double targets = whole.targets;
  StepResult done = [&] {
    const TapeWatcher::Scope scope(trace_ != nullptr ? trace_.get() : TapeWatcher::Current());
    return loop_->Step(BundlesOf(step), whole);
  }();
  loop_->Count(done);
  state_.grad_norm = done.grad_norm;
  double loss_sum = 0;
  std::vector<double> losses = done.losses;
  for (size_t m = 0; m < step.divisors.size(); ++m) losses[m] /= step.divisors[m];
  for (const double loss : GatherOverData(losses, mesh_)) loss_sum += loss;
  state_.loss = loss_sum / targets;
  state_.auxiliaries = MeanAuxiliaries(done.auxiliaries, step.targets, mesh_);
  state_.has_targets = step.all.targets > 0;
  steps_without_targets_ += state_.has_targets ? 0 : 1;
  state_.skipped_steps += !done.updated && config_.scales_loss() ? 1 : 0;
  state_.step = loop_->steps();
  ReadPosition();
  return done;
}

void Trainer::Run::ReadPosition() {
  const data::DataPosition at = sampler_.After(state_.step, mesh_.data_ranks());
  const auto epoch = static_cast<double>(samples_per_epoch());
  state_.samples = at.samples;
  state_.epoch = (static_cast<double>(at.epoch) * epoch + static_cast<double>(at.index)) / epoch;
}

// What the losses of all micro-batches of all ranks have counted.
std::vector<double> Trainer::Run::CountsOfStep(const StepResult& done) const {
  if (done.counts.empty()) return {};
  std::vector<double> mine;
  for (const std::vector<double>& counts : done.counts) {
    mine.insert(mine.end(), counts.begin(), counts.end());
  }
  std::vector<double> sums(done.counts[0].size(), 0.0);
  const std::vector<double> all = GatherOverData(mine, mesh_);
  for (size_t i = 0; i < all.size(); ++i) sums[i % sums.size()] += all[i];
  return sums;
}

Status Trainer::Run::FinalSave() {
  const bool keeps = config_.save_strategy != "no" || state_.step < state_.total_steps;
  if (checkpoints_.saved_step() != state_.step) {
    if (!keeps || state_.step < state_.total_steps) TESSERA_RETURN_IF_ERROR(CheckWeights());
    if (keeps) TESSERA_RETURN_IF_ERROR(AfterSave(SaveNow()));
  }
  TESSERA_RETURN_IF_ERROR(AfterSave(checkpoints_.Finish()));
  return checkpoints_.Prune();
}

// What the intervals want after this step.
Status Trainer::Run::AfterStep() {
  const bool last = state_.step == state_.total_steps;
  const auto is_due = [&](const std::string& strategy, double interval) {
    if (strategy == "epoch") return EndsEpoch(state_.step);
    const int64_t steps = StepsOf(interval, state_.total_steps);
    return strategy == "steps" && steps > 0 && state_.step % steps == 0;
  };
  const bool evaluates = validates() && config_.eval_strategy != "no";
  evaluation_due_ = evaluates && (last || is_due(config_.eval_strategy, config_.eval_interval));
  epoch_end_due_ = EndsEpoch(state_.step);
  Tell(&TrainerCallback::OnStepEnd);
  return FinishAfterStep({.log = last || is_due(config_.log_strategy, config_.log_interval),
                          .save = (last && config_.save_strategy != "no") ||
                                  is_due(config_.save_strategy, config_.save_interval)});
}

// What is due after a step, and what callbacks ask for meanwhile; what an event asks for comes
// behind it. A checkpoint is on the disk before an evaluation begins, which may take long: it says
// what is due, and that it was done once it is.
Status Trainer::Run::FinishAfterStep(TrainControl due) {
  bool logged = false;
  bool evaluated = false;
  std::optional<CheckpointKeeper::Appeared> saved;
  while (true) {
    const TrainControl asked = Asked();
    due.log = due.log || asked.log;
    due.save = due.save || asked.save;
    evaluation_due_ = (evaluation_due_ || asked.evaluate) && !evaluated;
    const bool is_saved = checkpoints_.saved_step() == state_.step;
    if (due.log && !std::exchange(logged, true)) {
      TESSERA_RETURN_IF_ERROR(LogSteps());
    } else if (due.save && !is_saved && (evaluation_due_ || epoch_end_due_)) {
      saved = SaveNow();
      TESSERA_RETURN_IF_ERROR(saved->status());
      amends_ = true;
    } else if (evaluation_due_ && !std::exchange(evaluated, true)) {
      TESSERA_RETURN_IF_ERROR(EvaluateAndLog());
      if (interrupted_) break;
      evaluation_due_ = false;
    } else if (std::exchange(epoch_end_due_, false)) {
      TESSERA_RETURN_IF_ERROR(EndEpoch());
    } else {
      break;
    }
  }
  if (due.save && !interrupted_ && checkpoints_.saved_step() != state_.step) {
    TESSERA_RETURN_IF_ERROR(AfterSave(SaveNow()));
  }
  if (amends_ && !interrupted_) {
    const CheckpointKeeper::Appeared finished = checkpoints_.Finish();
    TESSERA_RETURN_IF_ERROR(finished.status());
    if (*finished) saved = finished;
    TESSERA_RETURN_IF_ERROR(checkpoints_.Amend(StateNow().ToJson()));
  }
  amends_ = false;
  return saved ? AfterSave(*saved) : OkStatus();
}

// Tells the launcher of the step, and keeps a checkpoint in the hosts' memory. A host whose memory
// is full does not end the run.
Status Trainer::Run::AfterElasticStep() {
  if (!elastic_) return OkStatus();
  const double waited = dist::SecondsWaited();
  const double worked = std::max(0.0, state_.seconds - (waited - std::exchange(waited_, waited)));
  progress_.begun_at = begun_at_;
  progress_.step = state_.step;
  progress_.worked += worked;
  // Where it cannot be written, the launcher misses a step's number and nothing else.
  (void)WriteProgress(elastic_->folder, mesh_.world()->rank(), progress_);
  const bool is_due = memory_ && state_.step % elastic_->interval == 0;
  if (!is_due || state_.step == state_.total_steps) return OkStatus();
  const Status saved = memory_->Save(state_.step, engine_->Tensors(), StateNow().ToJson());
  if (!saved.ok()) {
    log_.Warning(Concat("no checkpoints are kept in memory from now on: ", Message(saved)));
    memory_.reset();
  }
  return OkStatus();
}

int64_t Trainer::Run::PeakBytes() const {
  return GreatestOf(Allocator::For(model_.build().device).stats().peak_bytes, mesh_);
}

// Steps without a target have no row.
Status Trainer::Run::LogSteps() {
  if (report_->sums().steps == 0) return OkStatus();
  nlohmann::ordered_json more;
  more["peak_bytes"] = PeakBytes();
  const EvaluationMetrics* const metrics = data_.objective.metrics.get();
  const std::vector<double>& counts = report_->sums().counts;
  if (metrics != nullptr && metrics->reads() == EvaluationMetrics::Reads::kLossCounts &&
      counts.size() == metrics->num_counts()) {
    more.update(metrics->Finish(counts));
  }
  if (config_.wall_clock_breakdown) engine_->phases().Report(report_->sums().steps, &more);
  engine_->phases().Reset();
  if (config_.wall_clock_breakdown && mesh_.pp()->size() > 1) {
    TESSERA_RETURN_IF_ERROR(
        WritePipelineTimeline(config_.out, state_.step, engine_->phases().timeline(), mesh_));
  }
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::ordered_json row, report_->WriteSteps(state_, more));
  Tell(&TrainerCallback::OnLog, row);
  return OkStatus();
}

Status Trainer::Run::EndEpoch() {
  TESSERA_RETURN_IF_ERROR(report_->WriteEpoch(state_, {{"peak_bytes", PeakBytes()}}));
  Tell(&TrainerCallback::OnEpochEnd);
  return OkStatus();
}

CheckpointKeeper::Appeared Trainer::Run::SaveNow() {
  const ProfileSpan span("phase", "save");
  if (state_.step == state_.total_steps) TESSERA_RETURN_IF_ERROR(CheckWeights());
  return checkpoints_.Save(state_.step, engine_->Tensors(), StateNow().ToJson());
}

Status Trainer::Run::AfterSave(const CheckpointKeeper::Appeared& appeared) {
  TESSERA_RETURN_IF_ERROR(appeared.status());
  if (*appeared) Tell(&TrainerCallback::OnSave, **appeared);
  return OkStatus();
}

}  // namespace tessera::train
