// SPDX-License-Identifier: Apache-2.0
// Ends a run when its evaluations have stopped to improve.
//
//   EarlyStopping stopping({.metric = JudgedMetric::Named("f1"), .patience = 3});
//   trainer.AddCallback(&stopping);               // or --early-stopping-patience 3
//
// The run is over after `patience` evaluations in a row whose metric was not better than the best
// one before by more than `threshold` (Hugging Face's EarlyStoppingCallback). A metric that is no
// finite number is no better.
#ifndef TESSERA_TRAIN_CALLBACKS_EARLY_STOPPING_H_
#define TESSERA_TRAIN_CALLBACKS_EARLY_STOPPING_H_

#include <cstdint>
#include <optional>
#include <string>

#include "train/callbacks/judged_metric.h"
#include "train/callbacks/trainer_callback.h"

namespace tessera::train {

struct EarlyStoppingOptions {
  JudgedMetric metric = JudgedMetric::Named("loss");
  int64_t patience = 1;
  double threshold = 0;
};

class EarlyStopping : public TrainerCallback {
 public:
  explicit EarlyStopping(EarlyStoppingOptions options) : options_(std::move(options)) {}

  // A run that ended so does not continue when it is resumed.
  void OnTrainBegin(const TrainState&, TrainControl& control) override { StopIfDue(control); }
  void OnEvaluate(const TrainState& state, TrainControl& control) override;

  std::string name() const override { return "early_stopping"; }
  nlohmann::json State() const override;
  Status Restore(const nlohmann::json& state) override;

 private:
  void StopIfDue(TrainControl& control) const;

  const EarlyStoppingOptions options_;
  std::optional<double> best_;
  int64_t worse_ = 0;  // evaluations in a row
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CALLBACKS_EARLY_STOPPING_H_
