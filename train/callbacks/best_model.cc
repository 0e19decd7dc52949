// SPDX-License-Identifier: Apache-2.0
#include "train/callbacks/best_model.h"

#include "nlohmann/json.hpp"

namespace tessera::train {

void BestModel::OnEvaluate(const TrainState& state, TrainControl& control) {
  const std::optional<double> value = metric_.Of(state);
  if (!value || (found_ && !metric_.Better(*value, found_->value))) return;
  found_ = {.step = state.step, .value = *value};
  control.save = true;
}

nlohmann::json BestModel::State() const {
  if (!found_) return nlohmann::json::object();
  return {{"step", found_->step}, {"value", found_->value}, {"metric", metric_.row_name()}};
}

std::optional<int64_t> BestModel::StepOf(const nlohmann::json& state) {
  if (!state.is_object() || !state.contains("step") || !state["step"].is_number_integer()) {
    return std::nullopt;
  }
  return state["step"].get<int64_t>();
}

Status BestModel::Restore(const nlohmann::json& state) {
  found_.reset();
  if (state.is_object() && state.empty()) return OkStatus();
  const std::optional<int64_t> step = StepOf(state);
  if (!step || !state.contains("value") || !state["value"].is_number()) {
    return DataLoss("names no best checkpoint");
  }
  // Values of another metric say nothing of this one's.
  if (state.value("metric", nlohmann::json()) != metric_.row_name()) return OkStatus();
  found_ = {.step = *step, .value = state["value"].get<double>()};
  return OkStatus();
}

std::string BestModel::Text() const {
  return Concat("step ", found_->step, " (", metric_.row_name(), " ", found_->value, ")");
}

}  // namespace tessera::train
