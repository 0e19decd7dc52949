// SPDX-License-Identifier: Apache-2.0
// What a run does with a step whose numbers are not finite, or whose loss is far above the usual.
#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/autograd.h"
#include "base/file.h"
#include "core/batch_keys.h"
#include "dist/pipeline/executor.h"
#include "nlohmann/json.hpp"
#include "ops/cast/cast.h"
#include "ops/reduction/sum.h"
#include "train/ranks/agreement.h"
#include "train/trainer_run.h"

namespace tessera::train {
namespace {

// So many updates that are skipped in a row, at a scale that cannot fall, end a run.
constexpr int64_t kMostSkipped = 20;

// Texts may end within a character.
std::string JsonText(const nlohmann::ordered_json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Every rank prints a NaN alike, whatever its sign bit.
std::string NumberText(double value) { return std::isnan(value) ? "nan" : Concat(value); }

// Of all micro-batches of the step. Ranks that share the tokens of rows each have a part of a mean.
std::vector<double> MeansOfMicroBatches(const std::vector<double>& mine, const dist::Mesh& mesh) {
  const std::vector<double> all = GatherOverData(mine, mesh);
  std::vector<double> means(mine.size() * static_cast<size_t>(mesh.data_ranks()), 0.0);
  const size_t of_a_rank = mine.size(), sharing = static_cast<size_t>(mesh.cp()->size());
  for (size_t i = 0; i < all.size(); ++i) {
    means[i / of_a_rank / sharing * of_a_rank + i % of_a_rank] += all[i];
  }
  return means;
}

// A part at a time, as a wide copy of a whole tensor may not fit beside it. A dry run takes all of
// them for finite, and needs no more than the first part does.
bool IsFinite(const Tensor& t) {
  constexpr int64_t kPart = int64_t{1} << 20;
  const Tensor whole = t.ContiguousCopy();
  for (int64_t begin = 0; begin < whole.numel(); begin += kPart) {
    const int64_t size = std::min(kPart, whole.numel() - begin);
    const Tensor part = whole.AsStrided({size}, {1}, whole.offset() + begin);
    const Tensor sum = Sum(Cast(part, DType::kFloat64));
    if (sum.device().is_meta()) return true;
    if (!std::isfinite(sum.Item())) return false;
  }
  return true;
}

}  // namespace

// The same on all ranks, as what is judged is. What older checkpoints are for is over once a step
// has shown that the newest one's weights give numbers.
Status Trainer::Run::CheckStep(const StepBatches& step, const StepResult& done) {
  const bool overflow = !done.updated && config_.scales_loss();  // which loss scaling deals with
  if (state_.loss_scale) TESSERA_RETURN_IF_ERROR(CheckLossScale(step, overflow));
  std::optional<BadStep> bad;
  if (config_.check_finite) bad = FirstBadStep(done.bad_number);
  finite_ = std::isfinite(state_.loss) && (std::isfinite(state_.grad_norm) || overflow) && !bad;
  TESSERA_RETURN_IF_ERROR(CheckSpike(step, done));
  if (finite_ && config_.spike_factor == 0) sound_step_ = state_.step - 1;
  if (finite_ || config_.on_non_finite == "continue") return checkpoints_.Prune();
  const std::string what = Concat("step ", state_.step, ": the loss is ", NumberText(state_.loss),
                                  ", the norm of the gradients ", NumberText(state_.grad_norm));
  if (config_.on_non_finite == "skip" && !done.updated) {
    log_.Warning(what + "; the update is left out");
    return checkpoints_.Prune();
  }
  return StepNotFinite(what, step, std::move(bad));
}

// Of a step whose update was left out, so that its passes can be taken again.
Status Trainer::Run::StepNotFinite(const std::string& what, const StepBatches& step,
                                   std::optional<BadStep> bad) {
  const bool again = engine_->scaler() != nullptr;
  if (!bad && again) {
    bad = FirstBadStep(loop_->FindBadNumber(BundlesOf(step), WholeStepOf(step)));
  }
  if (bad) {
    TESSERA_RETURN_IF_ERROR(Agree(mesh_, TellBadStep(what, *bad)));
    return Stop(Concat(what, "; ", bad->Text(mesh_)));
  }
  return Stop(again ? Concat(what, "; its operations give finite numbers when it is run again")
                    : Concat(what, "; check_finite would name the operation (max_grad_norm is ",
                             "0: the update is made as gradients come)"));
}

std::optional<BadStep> Trainer::Run::FirstBadStep(const std::optional<BadNumber>& mine) const {
  std::optional<BadStep> bad = FirstOfRanks(mesh_, mine, config_.accumulation_steps());
  if (bad && !bad->number.operation.empty()) {
    bad->samples = SamplesOf(bad->number.place.micro_batch);
  }
  return bad;
}

// Of a micro-batch of all ranks' of the step that was counted last. Whatever goes wrong here, a
// greater fault is about to be told.
std::vector<BadSample> Trainer::Run::SamplesOf(int64_t micro_batch) const {
  constexpr int64_t kTokensShown = 64;
  std::vector<BadSample> samples;
  if (parts_.train_batch.run != nullptr) return samples;  // the program knows
  const std::vector<data::Sample> rows =
      sampler_.Rows({.step = state_.step - 1,
                     .micro_batch = micro_batch % config_.accumulation_steps(),
                     .rank = micro_batch / config_.accumulation_steps(),
                     .world = mesh_.data_ranks()});
  if (rows.empty()) return samples;
  const StatusOr<data::Batch> batch = data_.train->MakeBatch(rows);
  const Tensor* const ids = batch.ok() ? batch->tensors.FindNamed(keys::kInputIds.name()) : nullptr;
  for (const data::Sample& row : rows) {
    BadSample& sample = samples.emplace_back(BadSample{
        .index = row.index, .position = row.position, .name = data_.train->NameOf(row.index)});
    const auto number = std::ssize(samples) - 1;
    if (tokenizer_ == nullptr || ids == nullptr || ids->ndim() != 2 || number >= ids->size(0)) {
      continue;
    }
    const Tensor row_ids = ids->AsStrided({std::min(kTokensShown, ids->size(1))}, {ids->stride(1)},
                                          ids->offset() + number * ids->stride(0));
    sample.text = tokenizer_->Decode(row_ids.ToVector<int32_t>());
  }
  return samples;
}

void Trainer::Run::WarnOfSamples(const std::vector<BadSample>& samples) const {
  for (const BadSample& sample : samples) {
    if (sample.text.empty()) continue;
    log_.Warning(Concat("sample ", sample.index, ", number ", sample.position,
                        " of all that were drawn, begins ", JsonText(sample.text)));
  }
}

// A loss far above the usual one of the last 20 steps or so.
Status Trainer::Run::CheckSpike(const StepBatches& step, const StepResult& done) {
  constexpr int64_t kStepsBefore = 10;  // the loss of a run's first steps falls fast
  constexpr double kWeight = 0.05;      // of a step in the mean
  if (config_.spike_factor == 0 || !finite_ || !state_.has_targets) return OkStatus();
  const double usual = state_.usual_loss.value_or(state_.loss);
  if (state_.step <= kStepsBefore || state_.loss <= config_.spike_factor * usual) {
    state_.usual_loss = usual + kWeight * (state_.loss - usual);
    sound_step_ = state_.step - 1;
    return OkStatus();
  }
  std::vector<double> mine;
  for (size_t m = 0; m < done.losses.size(); ++m) {
    const double targets = step.targets[m];
    mine.push_back(targets > 0 ? done.losses[m] / targets : 0);
  }
  const std::vector<double> means = MeansOfMicroBatches(mine, mesh_);
  const auto worst = std::max_element(means.begin(), means.end()) - means.begin();
  const std::vector<BadSample> samples = SamplesOf(worst);
  WarnOfSamples(samples);
  const std::string what =
      Concat("step ", state_.step, ": the loss is ", state_.loss, ", more than ",
             config_.spike_factor, " times the mean of the steps before, ", usual,
             "; the norm of the gradients is ", state_.grad_norm, ", and micro-batch ", worst,
             SamplesText(samples), " has the greatest loss, ", means[static_cast<size_t>(worst)]);
  if (config_.on_non_finite == "stop") return Stop(what);
  log_.Warning(what);
  return OkStatus();
}

// The state that the step began with, which Replay takes it from.
Status Trainer::Run::SaveBadStep() const {
  ResumeState state = StateNow();
  state.position = sampler_.After(state_.step - 1, mesh_.data_ranks());
  return dist::SaveCheckpoint(JoinPath(config_.out, kBadStep), state_.step - 1, engine_->Tensors(),
                              state.ToJson(), *mesh_.world());
}

// What a person, or a program, looks at: `<out>/bad_step.json`, and the samples' texts.
Status Trainer::Run::TellBadStep(const std::string& what, const BadStep& bad) {
  WarnOfSamples(bad.samples);
  // After an update the weights are those of after.
  const Status saved =
      loop_->applied() ? InvalidArgument("its update has been made") : Agree(mesh_, SaveBadStep());
  if (!saved.ok()) log_.Warning("the step cannot be replayed: " + Message(saved));
  if (!mesh_.prints()) return OkStatus();
  nlohmann::ordered_json json = {
      {"step", state_.step}, {"message", what}, {"data_ranks", mesh_.data_ranks()}};
  json.update(bad.ToJson());
  return WriteFileAtomically(JoinPath(config_.out, kBadStep) + ".json", JsonText(json, 2) + "\n");
}

// Where the scale falls with each overflow, some overflows are how it finds its height.
Status Trainer::Run::CheckLossScale(const StepBatches& step, bool overflow) {
  const optim::GradScalerOptions& scaling = engine_->scaler()->options();
  const bool falls =
      scaling.dynamic && scaling.backoff_factor < 1 && *state_.loss_scale > scaling.min_scale;
  state_.loss_scale = dist::NumberOf(engine_->scaler()->scale());
  skipped_here_ += overflow ? 1 : 0;
  skipped_in_a_row_ = overflow && !falls ? skipped_in_a_row_ + 1 : 0;
  if (skipped_in_a_row_ < kMostSkipped || config_.on_non_finite != "stop") return OkStatus();
  return StepNotFinite(Concat("step ", state_.step, ": the gradients have overflowed at ",
                              skipped_in_a_row_, " steps in a row, and the loss scale, ",
                              *state_.loss_scale, ", cannot fall (loss_scale, min_scale)"),
                       step);
}

void Trainer::Run::WarnOfStepsInVain() const {
  const int64_t steps = state_.step - begun_at_;
  if (steps > 0 && skipped_here_ == steps) {
    log_.Warning(Concat("all ", steps,
                        " updates were skipped, since the gradients overflowed: the ",
                        "weights are as they were; the loss scale is now ", *state_.loss_scale));
  }
  if (steps_without_targets_ > 0) {
    log_.Warning(Concat(steps_without_targets_, " of ", steps,
                        " steps had no target and taught nothing; rows leave them out"));
  }
}

// Weights are known to be sound once a step has shown it.
std::string Trainer::Run::SoundCheckpoint() const {
  const int64_t newest = checkpoints_.saved_step();
  if (newest < 0) return "there is no checkpoint yet";
  const std::string path = dist::CheckpointPath(config_.out, newest);
  if (newest <= sound_step_) return "the newest checkpoint is " + path;
  int64_t sound = -1;
  for (const int64_t step : dist::ListCheckpoints(config_.out)) {
    if (step <= sound_step_) sound = step;
  }
  if (sound < 0)
    return Concat("no step has shown that the newest checkpoint, ", path, ", is sound");
  return Concat("the newest checkpoint that a step has shown to be sound is ",
                dist::CheckpointPath(config_.out, sound), "; ", path, " is not known to be");
}

// A failure of all ranks; what was on its way to the disk before gets there.
Status Trainer::Run::Stop(const std::string& what) {
  TESSERA_RETURN_IF_ERROR(AfterSave(checkpoints_.Finish()));
  return Agree(mesh_,
               Internal(what, "; the run stops (on_non_finite: skip or continue would not); ",
                        SoundCheckpoint()));
}

// After the last update no step is left that would show it.
Status Trainer::Run::CheckWeights() {
  if (config_.on_non_finite == "continue") return OkStatus();
  const NoGrad no_grad;
  std::string bad;
  for (const dist::CheckpointTensor& t : engine_->Tensors()) {
    if (!bad.empty() || !IsFloating(t.tensor.dtype()) || t.tensor.numel() == 0) continue;
    if (!IsFinite(t.tensor)) bad = t.name;
  }
  Status mine;
  if (!bad.empty()) mine = Internal("'", bad, "' is not finite");
  const Status all = Agree(mesh_, mine);
  if (all.ok()) return OkStatus();
  finite_ = false;
  return Stop(Concat("after step ", state_.step, ": ", Message(all)));
}

}  // namespace tessera::train
