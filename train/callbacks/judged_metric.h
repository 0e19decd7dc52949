// SPDX-License-Identifier: Apache-2.0
// The number of an evaluation that decides which model is better.
//
//   const JudgedMetric metric = JudgedMetric::Named("accuracy");
//   if (const auto value = metric.Of(state); value && (!best || metric.Better(*value, *best))) ...
#ifndef TESSERA_TRAIN_CALLBACKS_JUDGED_METRIC_H_
#define TESSERA_TRAIN_CALLBACKS_JUDGED_METRIC_H_

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "train/train_state.h"

namespace tessera::train {

class JudgedMetric {
 public:
  // `loss`, or one of the task's metrics; `val_` or `eval_` may be before the name. Without
  // `greater_is_better` greater is better but for losses and errors (`mse`).
  static JudgedMetric Named(const std::string& name, std::optional<bool> greater_is_better = {});

  // As rows of metrics have it: "val_accuracy".
  std::string row_name() const { return "val_" + name_; }
  // Of the last evaluation; nullopt where it is no finite number.
  std::optional<double> Of(const TrainState& state) const;
  bool Better(double value, double than) const {
    return greater_is_better_ ? value > than : value < than;
  }
  // Refuses a name that is not among those of an evaluation's metrics.
  Status CheckAmong(std::vector<std::string> names) const;

 private:
  JudgedMetric(std::string name, bool greater_is_better)
      : name_(std::move(name)), greater_is_better_(greater_is_better) {}

  std::string name_;
  bool greater_is_better_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CALLBACKS_JUDGED_METRIC_H_
