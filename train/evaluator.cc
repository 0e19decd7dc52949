#include "train/evaluator.h"

#include <algorithm>
#include <utility>

#include "autograd/autocast.h"
#include "autograd/autograd.h"
#include "data/dataset/sampler.h"
#include "models/model_keys.h"
#include "train/agreement.h"
#include "train/step_report.h"

namespace tessera::train {

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

models::Bundle Evaluator::Predict(const data::Batch& batch) const {
  const Objective& objective = options_.objective;
  models::RunOptions options;
  options.loss_reduction = LossReduction::kSum;
  options.keep_logits = objective.metrics != nullptr && objective.metrics->needs_logits();
  options.class_weights = objective.class_weights;
  const models::Bundle there = OnDevice(batch.tensors, model_.build().device);
  return options_.prediction_step != nullptr ? options_.prediction_step(there, options)
                                             : model_.Run(there, options);
}

// What a batch adds.
StatusOr<std::vector<double>> Evaluator::SumsOf(const data::Batch& batch) const {
  const EvaluationMetrics* metrics = options_.objective.metrics.get();
  const models::Bundle outputs = Predict(batch);
  std::vector<double> sums = {outputs.at(keys::kLoss).Item(), options_.objective.TargetsOf(batch)};
  if (metrics == nullptr) return sums;
  TESSERA_ASSIGN_OR_RETURN(const std::vector<double> counts,
                           metrics->Count(model_, batch, outputs, largest_over_ranks_));
  sums.insert(sums.end(), counts.begin(), counts.end());
  return sums;
}

StatusOr<std::vector<double>> Evaluator::Sum(const BatchSource& batches) const {
  const int64_t ranks = mesh_.dp()->size();
  std::vector<double> sums(num_sums(), 0.0);
  for (int64_t round = 0; round * ranks < batches.size; ++round) {
    const int64_t number = round * ranks + mesh_.dp()->rank();
    const bool counts = number < batches.size;
    StatusOr<data::Batch> batch = data::Batch();
    if (counts || options_.forward_is_collective) {
      batch = batches.batch(std::min(number, batches.size - 1));
    }
    TESSERA_RETURN_IF_ERROR(Agree(mesh_, batch.status()));
    StatusOr<std::vector<double>> mine = std::vector<double>(sums.size(), 0.0);
    if (batch->rows > 0) mine = SumsOf(*batch);
    if (!counts && mine.ok()) mine = std::vector<double>(sums.size(), 0.0);  // run along only
    TESSERA_RETURN_IF_ERROR(Agree(mesh_, mine.status()));
    const std::vector<double> found = GatherOverData(*mine, mesh_);
    for (size_t i = 0; i < found.size(); ++i) sums[i % sums.size()] += found[i];
  }
  return sums;
}

StatusOr<EvaluationResult> Evaluator::Run(const BatchSource& batches) const {
  const NoGrad no_grad;
  const AutocastScope autocast(options_.products);
  const StatusOr<std::vector<double>> sums = Sum(batches);
  TESSERA_RETURN_IF_ERROR(sums.status());
  EvaluationResult result = {.loss = (*sums)[0] / ((*sums)[1] > 0 ? (*sums)[1] : 1)};
  const EvaluationMetrics* metrics = options_.objective.metrics.get();
  if (metrics != nullptr) result.metrics = metrics->Finish({sums->begin() + 2, sums->end()});
  return result;
}

}  // namespace tessera::train
