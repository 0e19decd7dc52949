// SPDX-License-Identifier: Apache-2.0
// A run without numbers, for its memory and its communication.
#include <algorithm>
#include <tuple>
#include <utility>

#include "autograd/autocast.h"
#include "base/error.h"
#include "base/file.h"
#include "train/trainer_run.h"

namespace tessera::train {
namespace {

// So many steps are looked through for the one with the largest batches; fewer where all are alike.
constexpr int64_t kStepsLookedAt = 256;
constexpr int64_t kStepsAlike = 8;

// The sample that makes the longest row; nullopt where all are alike.
std::optional<int64_t> LongestSample(const data::Dataset& dataset) {
  if (dataset.size() == data::kUnknownSize || dataset.size() == 0 || !dataset.length_of(0)) {
    return std::nullopt;
  }
  int64_t longest = 0;
  for (int64_t i = 1; i < dataset.size(); ++i) {
    if (*dataset.length_of(i) > *dataset.length_of(longest)) longest = i;
  }
  return longest;
}

// Bytes, and targets, whose logits some heads make alone.
std::pair<int64_t, int64_t> SizeOf(const data::Batch& batch) {
  int64_t bytes = 0;
  for (const auto& [name, t] : batch.tensors.entries()) bytes += t.defined() ? t.nbytes() : 0;
  return {bytes, batch.targets};
}

// Micro-batches of the first step where a second one follows: it is there for what it makes, which
// the second finds. Each stage has some of them; schedules and balanced sums can divide them as
// they divide the step's.
int64_t MicroBatchesToBegin(const RunConfig& config) {
  int64_t count = config.accumulation_steps();
  while (count % 2 == 0 && count / 2 >= 2 * config.pp && count / 2 % config.pp == 0) count /= 2;
  return count;
}

// On the CPU batches come from the model's own allocator; on a GPU they lie in host memory.
bool HoldsData(const models::Model& model) {
  return model.build().device.target == DeviceType::kCpu;
}

}  // namespace

StatusOr<data::Batch> Trainer::Run::LargestBatch(const data::BatchPlace& place) const {
  const std::optional<int64_t> longest = LongestSample(*data_.train);
  std::vector<data::Sample> rows = sampler_.Rows(place);
  // Where all steps were looked at, the largest of them is the largest.
  const bool known = state_.total_steps <= kStepsLookedAt;
  if (known || !longest || rows.empty() || parts_.train_batch.run != nullptr) {
    return TrainBatch(place.step * config_.accumulation_steps() + place.micro_batch);
  }
  rows.front().index = *longest;
  return data_.train->MakeBatch(rows);
}

// Of this rank.
StatusOr<int64_t> Trainer::Run::LargestStep() const {
  const int64_t micro_batches = config_.accumulation_steps();
  const int64_t steps = std::min(state_.total_steps, kStepsLookedAt);
  std::pair<int64_t, int64_t> greatest = {-1, -1};
  int64_t largest = 0;
  const bool varies = LongestSample(*data_.train).has_value();
  int64_t alike = 0;
  for (int64_t step = 0; step < steps && (varies || alike < kStepsAlike); ++step) {
    std::pair<int64_t, int64_t> size = {0, 0};
    for (int64_t m = 0; m < micro_batches; ++m) {
      TESSERA_ASSIGN_OR_RETURN(const data::Batch batch, TrainBatch(step * micro_batches + m));
      const auto [bytes, targets] = SizeOf(batch);
      size.first += bytes;
      size.second += targets;
    }
    alike = size == greatest ? alike + 1 : 0;
    if (size > greatest) std::tie(greatest, largest) = std::pair(size, step);
  }
  return largest;
}

// What the loader holds meanwhile, as far as there are batches left.
std::vector<models::Bundle> Trainer::Run::BatchesAhead(const data::Batch& batch) const {
  std::vector<models::Bundle> ahead;
  const int64_t left = (state_.total_steps - state_.step - 1) * config_.accumulation_steps();
  for (int64_t i = 0; i < std::min(left, kBatchesAhead); ++i) {
    ahead.push_back(OnDevice(batch.tensors, model_.build().device));
  }
  return ahead;
}

// A step of the sizes of step `like`; `then` is called while its batches are there.
Status Trainer::Run::RehearseStep(int64_t like, const std::function<void(RunPhase phase)>& ended,
                                  const std::function<Status()>& then) {
  int64_t m = 0;
  StepBatches step = FetchStep([&] {
    return LargestBatch(
        {.step = like, .micro_batch = m++, .rank = mesh_.data_rank(), .world = mesh_.data_ranks()});
  });
  TESSERA_RETURN_IF_ERROR(step.status);
  if (state_.step == 0 && state_.total_steps > 1) {
    const auto begin = static_cast<size_t>(MicroBatchesToBegin(config_));
    step.batches.resize(begin);
    step.targets.resize(begin);
    if (!step.divisors.empty()) step.divisors.resize(begin);
  }
  std::vector<models::Bundle> ahead;
  if (HoldsData(model_)) {
    ahead = BatchesAhead(step.batches[0]);
    for (data::Batch& batch : step.batches) {
      batch.tensors = OnDevice(batch.tensors, model_.build().device);
    }
  }
  ended(RunPhase::kData);
  const StepResult done = RunStep(step);
  CountsOfStep(done);
  TESSERA_RETURN_IF_ERROR(TraceStep(step));
  if (config_.check_finite) FirstBadStep(std::nullopt);
  state_.tokens = step.all.tokens;
  return then();
}

Status Trainer::Run::RehearseEvaluation() {
  const AutocastScope autocast(config_.product_dtype());
  const data::Dataset& dataset = *data_.validation;
  const std::optional<int64_t> longest = LongestSample(dataset);
  const int64_t rows = std::min(config_.batch_size, dataset.size());
  std::vector<data::Sample> samples;
  for (int64_t i = 0; i < rows; ++i) samples.push_back({.index = i, .position = i});
  if (longest) samples.front().index = *longest;
  const BatchSource source = {.size = mesh_.dp()->size(),
                              .batch = [&](int64_t) { return dataset.MakeBatch(samples); }};
  return MakeEvaluator().Run(source).status();
}

Status Trainer::Run::RehearseSave() {
  TESSERA_RETURN_IF_ERROR(CheckWeights());
  return SaveModel(JoinPath(config_.out, "model"), /*tokenizer=*/nullptr);
}

Status Trainer::Run::Rehearse(const std::function<void(RunPhase phase)>& ended) {
  TESSERA_CHECK(model_.build().device.is_meta(), "rehearse", "the model is on ",
                model_.build().device, ", not on meta");
  TESSERA_RETURN_IF_ERROR(PrepareSteps());
  TESSERA_RETURN_IF_ERROR(MakeEngine());
  ended(RunPhase::kStart);
  TESSERA_ASSIGN_OR_RETURN(const int64_t largest, LargestStep());
  // What the first step makes is there in the second.
  TESSERA_RETURN_IF_ERROR(RehearseStep(largest, ended, [&] {
    ended(RunPhase::kFirstStep);
    return OkStatus();
  }));
  return RehearseStep(largest, ended, [&]() -> Status {
    ended(RunPhase::kStep);
    if (data_.validation != nullptr && config_.eval_strategy != "no" &&
        data_.validation->size() > 0) {
      TESSERA_RETURN_IF_ERROR(RehearseEvaluation());
      ended(RunPhase::kEvaluation);
    }
    TESSERA_RETURN_IF_ERROR(RehearseSave());
    ended(RunPhase::kSave);
    return OkStatus();
  });
}

}  // namespace tessera::train
