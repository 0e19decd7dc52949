// SPDX-License-Identifier: Apache-2.0
// Which checkpoint of a run was best by an evaluation. Asks for one whenever a new best is found,
// whatever the interval of saving is.
//
//   const BestModel* best = ...;                    // --load-best-model-at-end
//   if (best->found()) best->found()->step;
#ifndef TESSERA_TRAIN_CALLBACKS_BEST_MODEL_H_
#define TESSERA_TRAIN_CALLBACKS_BEST_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>

#include "train/callbacks/judged_metric.h"
#include "train/callbacks/trainer_callback.h"

namespace tessera::train {

class BestModel : public TrainerCallback {
 public:
  struct Found {
    int64_t step;
    double value;  // of the metric
  };

  explicit BestModel(JudgedMetric metric) : metric_(std::move(metric)) {}

  void OnEvaluate(const TrainState& state, TrainControl& control) override;

  std::string name() const override { return kName; }
  nlohmann::json State() const override;
  Status Restore(const nlohmann::json& state) override;

  const std::optional<Found>& found() const { return found_; }
  const JudgedMetric& metric() const { return metric_; }
  // "step 120 (val_loss 1.234)".
  std::string Text() const;

  static constexpr char kName[] = "best_model";
  // The step that such a state names.
  static std::optional<int64_t> StepOf(const nlohmann::json& state);

 private:
  const JudgedMetric metric_;
  std::optional<Found> found_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CALLBACKS_BEST_MODEL_H_
