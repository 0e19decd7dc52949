// SPDX-License-Identifier: Apache-2.0
#include "train/evaluator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "autograd/autocast.h"
#include "autograd/autograd.h"
#include "base/json_ordered.h"
#include "data/dataset/sampler.h"
#include "dist/comm/agreement.h"
#include "dist/pipeline/executor.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "train/ranks/agreement.h"
#include "train/report/step_report.h"

namespace tessera::train {
namespace {

Status StoppedStatus() { return Failure(StatusCode::kCancelled, "the evaluation was stopped"); }

// Every data-parallel rank's rows, in the order of the ranks.
void AppendRowsOfAll(const std::vector<PredictedRow>& mine, const dist::Mesh& mesh,
                     std::vector<PredictedRow>* all) {
  if (mesh.dp()->size() == 1) {
    all->insert(all->end(), mine.begin(), mine.end());
    return;
  }
  using Json = nlohmann::ordered_json;
  const std::string mine_text = Json(mine).dump(-1, ' ', false, Json::error_handler_t::replace);
  for (const std::string& text : dist::GatherStrings(*mesh.dp(), mine_text)) {
    auto rows = ParseOrderedJson(text, "rows of a rank").value();
    for (PredictedRow& row : rows) all->push_back(std::move(row));
  }
}

// What every data-parallel rank's batch keeps, in the order of the ranks.
void AppendKeptOfAll(std::vector<double> mine, const dist::Mesh& mesh, std::vector<double>* all) {
  const std::vector<double> counts = GatherOverData({static_cast<double>(mine.size())}, mesh);
  const auto longest = static_cast<int64_t>(*std::max_element(counts.begin(), counts.end()));
  if (longest == 0) return;
  mine.resize(static_cast<size_t>(longest));
  const std::vector<double> found = GatherOverData(mine, mesh);
  for (int64_t r = 0; r < std::ssize(counts); ++r) {
    const auto begin = found.begin() + r * longest;
    all->insert(all->end(), begin, begin + static_cast<int64_t>(counts[static_cast<size_t>(r)]));
  }
}

}  // namespace

BatchSource BatchesOf(const data::Dataset& dataset, int64_t batch_size, int64_t max_batches) {
  const data::Sampler order({.num_samples = dataset.size(),
                             .batch_size = batch_size,
                             .shuffle = false,
                             .end_position = dataset.size()});
  const int64_t all = order.StepsFor(dataset.size(), /*world=*/1);
  return {.size = max_batches > 0 ? std::min(max_batches, all) : all,
          .batch = [&dataset, order](int64_t number) {
            return dataset.MakeBatch(order.Rows({.step = number}));
          }};
}

Evaluator::Evaluator(models::Model& model, const dist::Mesh& mesh, EvaluatorOptions options)
    : model_(model), mesh_(mesh), options_(std::move(options)) {
  if (!options_.forward_is_collective) return;
  largest_over_ranks_ = [group = mesh_.dp()](int64_t mine) {
    const Tensor largest = Tensor::FromVector<int64_t>({mine}, {1});
    group->AllReduce(largest, ReduceOp::kMax)->Wait();
    return *largest.data<int64_t>();
  };
}

// The loss, what it is divided by, the counts of the metrics.
size_t Evaluator::num_sums() const {
  const EvaluationMetrics* metrics = options_.objective.metrics.get();
  return 2 + (metrics == nullptr ? 0 : metrics->num_counts());
}

models::Bundle Evaluator::Forward(const data::Batch& batch, bool keeps_logits, bool cut) const {
  models::RunOptions options;
  options.loss_reduction = LossReduction::kSum;
  options.keep_logits = keeps_logits;
  options.label_smoothing = options_.label_smoothing;
  options.class_weights = options_.objective.class_weights;
  // Which a dry run cannot count.
  if (model_.build().device.is_meta()) {
    options.loss_targets = static_cast<double>(batch.targets);
  }
  models::Bundle there = OnDevice(batch.tensors, model_.build().device);
  if (cut) there = model_.ShareOfSequences(there, &options);
  return options_.prediction_step != nullptr ? options_.prediction_step(there, options)
                                             : model_.Run(there, options);
}

bool Evaluator::Writes(bool predicts) const {
  const Objective& objective = options_.objective;
  const EvaluationMetrics* const metrics = objective.labelled ? objective.metrics.get() : nullptr;
  // Without numbers no text can be written.
  return objective.write != nullptr && !model_.build().device.is_meta() &&
         (predicts || (metrics != nullptr && metrics->reads() == EvaluationMetrics::Reads::kTexts));
}

bool Evaluator::ReadsLogits(bool predicts) const {
  const Objective& objective = options_.objective;
  const EvaluationMetrics* const metrics = objective.labelled ? objective.metrics.get() : nullptr;
  return (metrics != nullptr && metrics->reads() == EvaluationMetrics::Reads::kLogits) ||
         (predicts && !Writes(predicts));
}

bool Evaluator::CutsRows(bool predicts) const {
  return mesh_.cp()->size() > 1 && options_.prediction_step == nullptr && !Writes(predicts) &&
         !ReadsLogits(predicts);
}

// Of a batch without labels whose texts are wanted, the texts alone.
StatusOr<BatchResult> Evaluator::ResultOf(const data::Batch& batch, bool predicts) const {
  const Objective& objective = options_.objective;
  const bool writes = Writes(predicts);
  BatchResult result;
  if (objective.labelled || !writes) {
    result.outputs = Forward(batch, ReadsLogits(predicts), CutsRows(predicts));
  }
  if (!writes) return result;
  TESSERA_ASSIGN_OR_RETURN(result.texts, objective.write(model_, batch, largest_over_ranks_));
  return result;
}

StatusOr<Evaluator::Share> Evaluator::ShareOf(const data::Batch& batch, bool predicts) const {
  const Objective& objective = options_.objective;
  TESSERA_ASSIGN_OR_RETURN(const BatchResult result, ResultOf(batch, predicts));
  Share share = {.sums = std::vector<double>(num_sums(), 0.0), .kept = {}, .rows = {}};
  if (predicts) share.rows = objective.predict(batch, result);
  if (!objective.labelled) return share;
  share.sums[0] = dist::NumberOf(result.outputs.at(keys::kLoss));
  // Ranks that share out a batch count it once.
  const bool adds = !CutsRows(predicts) || mesh_.cp()->rank() == 0;
  if (adds) share.sums[1] = objective.TargetsOf(batch);
  if (objective.metrics == nullptr || model_.build().device.is_meta()) return share;
  TESSERA_ASSIGN_OR_RETURN(const std::vector<double> counts,
                           objective.metrics->Count(batch, result));
  if (!adds) return share;
  const auto kept = counts.begin() +
                    static_cast<int64_t>(std::min(counts.size(), objective.metrics->num_counts()));
  std::copy(counts.begin(), kept, share.sums.begin() + 2);
  share.kept.assign(kept, counts.end());
  return share;
}

StatusOr<PredictionResult> Evaluator::Go(const BatchSource& batches, bool predicts) const {
  const NoGrad no_grad;
  const AutocastScope autocast(options_.products);
  const bool cut = CutsRows(predicts);
  const int64_t ranks = cut ? mesh_.data_ranks() : mesh_.dp()->size();
  const int64_t rank = cut ? mesh_.data_rank() : mesh_.dp()->rank();
  const EvaluationMetrics* const metrics = options_.objective.metrics.get();
  std::vector<double> sums(num_sums(), 0.0);
  std::vector<double> kept;
  PredictionResult result;
  for (int64_t round = 0; round * ranks < batches.size; ++round) {
    const int64_t number = round * ranks + rank;
    const bool counts = number < batches.size;
    StatusOr<data::Batch> batch = data::Batch();
    if (counts || options_.forward_is_collective) {
      batch = batches.batch(std::min(number, batches.size - 1));
    }
    const bool stops = options_.stops != nullptr && options_.stops();
    TESSERA_RETURN_IF_ERROR(Agree(mesh_, stops ? StoppedStatus() : batch.status()));
    const Share nothing = {.sums = std::vector<double>(sums.size(), 0.0), .kept = {}, .rows = {}};
    StatusOr<Share> mine = nothing;
    if (batch->rows > 0) mine = ShareOf(*batch, predicts);
    if (!counts && mine.ok()) mine = nothing;  // run along only
    TESSERA_RETURN_IF_ERROR(Agree(mesh_, mine.status()));
    const std::vector<double> found = GatherOverData(mine->sums, mesh_);
    for (size_t i = 0; i < found.size(); ++i) sums[i % sums.size()] += found[i];
    if (metrics != nullptr) AppendKeptOfAll(mine->kept, mesh_, &kept);
    if (predicts) AppendRowsOfAll(mine->rows, mesh_, &result.rows);
  }
  if (!options_.objective.labelled) return result;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  result.found =
      EvaluationResult{.loss = sums[1] > 0 ? sums[0] / sums[1] : kNone, .targets = sums[1]};
  if (metrics == nullptr) return result;
  sums.insert(sums.end(), kept.begin(), kept.end());
  result.found->metrics = metrics->Finish({sums.begin() + 2, sums.end()});
  return result;
}

StatusOr<EvaluationResult> Evaluator::Run(const BatchSource& batches) const {
  if (!options_.objective.labelled) return InvalidArgument("an evaluation needs labels");
  TESSERA_ASSIGN_OR_RETURN(PredictionResult result, Go(batches, /*predicts=*/false));
  return std::move(result.found).value();
}

StatusOr<PredictionResult> Evaluator::Predict(const BatchSource& batches) const {
  if (options_.objective.predict == nullptr) return InvalidArgument("the task predicts nothing");
  return Go(batches, /*predicts=*/true);
}

}  // namespace tessera::train
