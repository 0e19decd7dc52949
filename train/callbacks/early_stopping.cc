// SPDX-License-Identifier: Apache-2.0
#include "train/callbacks/early_stopping.h"

#include <cmath>

#include "nlohmann/json.hpp"

namespace tessera::train {

void EarlyStopping::OnEvaluate(const TrainState& state, TrainControl& control) {
  const std::optional<double> value = options_.metric.Of(state);
  const bool better = value && (!best_ || options_.metric.Better(*value, *best_));
  const bool clearly = better && (!best_ || std::abs(*value - *best_) > options_.threshold);
  if (better) best_ = value;
  worse_ = clearly ? 0 : worse_ + 1;
  StopIfDue(control);
}

void EarlyStopping::StopIfDue(TrainControl& control) const {
  if (worse_ < options_.patience) return;
  control.Stop(Concat("early stopping: ", options_.metric.row_name(), " was no better in ", worse_,
                      worse_ == 1 ? " evaluation" : " evaluations"));
}

nlohmann::json EarlyStopping::State() const {
  return {{"best", best_ ? nlohmann::json(*best_) : nullptr},
          {"worse", worse_},
          {"metric", options_.metric.row_name()}};
}

Status EarlyStopping::Restore(const nlohmann::json& state) {
  if (!state.is_object() || !state.contains("best") || !state.contains("worse") ||
      !state["worse"].is_number_integer() ||
      !(state["best"].is_null() || state["best"].is_number())) {
    return DataLoss("is no state of early stopping");
  }
  // Values of another metric say nothing of this one's.
  if (state.value("metric", nlohmann::json()) != options_.metric.row_name()) return OkStatus();
  best_ = state["best"].is_null() ? std::nullopt : std::optional(state["best"].get<double>());
  worse_ = state["worse"].get<int64_t>();
  return OkStatus();
}

}  // namespace tessera::train
