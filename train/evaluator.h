// SPDX-License-Identifier: Apache-2.0
// The loss and the task's metrics over data, shared out over the data-parallel ranks.
//
//   const Evaluator evaluator(model, mesh, {.objective = data.objective});
//   TESSERA_ASSIGN_OR_RETURN(const EvaluationResult found,
//                            evaluator.Run(BatchesOf(*data.validation, batch_size)));
//
// Batch b is rank b % ranks' to compute; sums are taken in the order of the batches, so that any
// number of ranks finds the same. Context-parallel ranks compute a batch together where only its
// loss is asked for, and are ranks of their own where metrics read logits or texts. Nothing is
// recorded for a backward pass, and no dropout is active.
#ifndef TESSERA_TRAIN_EVALUATOR_H_
#define TESSERA_TRAIN_EVALUATOR_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/json_member.h"
#include "base/status.h"
#include "core/dtype.h"
#include "data/dataset/dataset.h"
#include "dist/mesh/mesh.h"
#include "models/model.h"
#include "nlohmann/json_fwd.hpp"
#include "train/task.h"

namespace tessera::train {

// Batches by number, from 0: a data loader.
struct BatchSource {
  int64_t size = 0;
  std::function<StatusOr<data::Batch>(int64_t number)> batch;
};

// A dataset from its first sample to its last, or to `max_batches` batches; 0: all. The dataset
// must outlive the result.
BatchSource BatchesOf(const data::Dataset& dataset, int64_t batch_size, int64_t max_batches = 0);

// What an evaluation found: the mean loss per target, of how many targets (each with the weight of
// its class), and the task's metrics by name. Without a target there is no loss: NaN.
struct EvaluationResult {
  double loss = 0;
  double targets = 1;
  OrderedJsonMember metrics = OrderedJsonMember::Object();
};

// What a model says of data: of every row, in the order of the batches, the same on all ranks.
struct PredictionResult {
  std::vector<PredictedRow> rows;
  std::optional<EvaluationResult> found;  // of data with labels
};

// How a model is evaluated.
struct EvaluatorOptions {
  Objective objective = {};
  double label_smoothing = 0;        // of the loss
  DType products = DType::kFloat32;  // of float32 operands (autograd/autocast.h)
  // One forward pass of a batch on the model's device; the result has `loss`, summed over targets,
  // and what the metrics ask for. nullptr: the model's.
  std::function<models::Bundle(const models::Bundle& batch, const models::RunOptions& options)>
      prediction_step = nullptr;
  // Whether this rank is asked to stop; looked at between batches. nullptr: nobody asks.
  std::function<bool()> stops = nullptr;
  // Whether all ranks must run as many forward passes (ParameterStore::forward_is_collective).
  bool forward_is_collective = false;
};

class Evaluator {
 public:
  Evaluator(models::Model& model, const dist::Mesh& mesh, EvaluatorOptions options);

  // Collective over the mesh's world. A batch that cannot be made on one rank is every rank's
  // failure; so is a rank that is asked to stop (kCancelled).
  StatusOr<EvaluationResult> Run(const BatchSource& batches) const;
  // Of a task that predicts; the model runs once for both the rows and the metrics. Likewise.
  StatusOr<PredictionResult> Predict(const BatchSource& batches) const;

 private:
  // What one batch adds.
  struct Share {
    std::vector<double> sums;
    std::vector<double> kept;  // what the metrics give beside their counts
    std::vector<PredictedRow> rows;
  };
  size_t num_sums() const;
  // Whether texts are written, and whether logits are read.
  bool Writes(bool predicts) const;
  bool ReadsLogits(bool predicts) const;
  // Whether context-parallel ranks share out the tokens of a batch.
  bool CutsRows(bool predicts) const;
  models::Bundle Forward(const data::Batch& batch, bool keeps_logits, bool cut) const;
  StatusOr<BatchResult> ResultOf(const data::Batch& batch, bool predicts) const;
  StatusOr<Share> ShareOf(const data::Batch& batch, bool predicts) const;
  StatusOr<PredictionResult> Go(const BatchSource& batches, bool predicts) const;

  models::Model& model_;
  const dist::Mesh mesh_;
  const EvaluatorOptions options_;
  models::LargestOverRanks largest_over_ranks_;  // where forward passes are collective
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_EVALUATOR_H_
