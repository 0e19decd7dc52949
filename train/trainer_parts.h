// SPDX-License-Identifier: Apache-2.0
// What of a run a program may replace, part by part.
//
//   Trainer trainer(config, model, data, mesh,
//                   {.step = {.loss = {.run = MyLoss, .capturable = true}},
//                    .log = {.run = [](const nlohmann::ordered_json& row, MetricsLog& file) {
//                      SendSomewhere(row);
//                      return file.Append(row);
//                    }}});
//
// | Hugging Face's Trainer | here |
// |---|---|
// | get_train_dataloader | train_batch |
// | get_eval_dataloader, get_test_dataloader | validation_batches, test_batches |
// | create_optimizer, create_scheduler | step.optimizer, learning_rate |
// | compute_loss, training_step | step.loss (or step.forward), step.training_step |
// | prediction_step, evaluate, predict | prediction_step, evaluate, predict |
// | log | log |
//
// What is left out is the trainer's own. Every rank is given the same parts. Each states whether
// steps stay capturable with it (train/engine/step_parts.h).
#ifndef TESSERA_TRAIN_TRAINER_PARTS_H_
#define TESSERA_TRAIN_TRAINER_PARTS_H_

#include <cstdint>

#include "base/status.h"
#include "data/dataset/dataset.h"
#include "data/dataset/sampler.h"
#include "models/model.h"
#include "nlohmann/json_fwd.hpp"
#include "train/engine/step_parts.h"
#include "train/evaluator.h"
#include "train/report/metrics_log.h"

namespace tessera::train {

struct TrainerParts {
  StepParts step = {};
  // The micro-batch of a place; called ahead of its use, on a thread of its own. How many samples
  // an epoch has stays the dataset's to say. Ranks that share a model are asked for the same
  // places.
  HostPart<StatusOr<data::Batch>(const data::BatchPlace& place)> train_batch = {};
  // What evaluations during training go through; asked once for each, in place of the validation
  // data.
  HostPart<BatchSource()> validation_batches = {};
  // What Trainer::Predict() goes through.
  HostPart<BatchSource()> test_batches = {};
  // Of step `step` of `total_steps`, from 1.
  HostPart<double(int64_t step, int64_t total_steps)> learning_rate = {};
  // A forward pass of an evaluation or prediction (EvaluatorOptions::prediction_step). By default
  // the training step's, with its loss.
  HostPart<models::Bundle(const models::Bundle& batch, const models::RunOptions& options)>
      prediction_step = {};
  HostPart<StatusOr<EvaluationResult>(const BatchSource& batches)> evaluate = {};
  HostPart<StatusOr<PredictionResult>(const BatchSource& batches)> predict = {};
  // Writes a row of metrics; called on the rank that prints. `file` is `<out>/metrics.jsonl`.
  HostPart<Status(const nlohmann::ordered_json& row, MetricsLog& file)> log = {};
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TRAINER_PARTS_H_
