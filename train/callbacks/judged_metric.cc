// SPDX-License-Identifier: Apache-2.0
#include "train/callbacks/judged_metric.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "nlohmann/json.hpp"

namespace tessera::train {

JudgedMetric JudgedMetric::Named(const std::string& name, std::optional<bool> greater_is_better) {
  std::string bare = name;
  for (const std::string prefix : {"val_", "eval_"}) {
    if (name.starts_with(prefix)) bare = name.substr(prefix.size());
  }
  const bool error = bare.ends_with("loss") || bare == "mse";
  return {std::move(bare), greater_is_better.value_or(!error)};
}

std::optional<double> JudgedMetric::Of(const TrainState& state) const {
  std::optional<double> value;
  if (name_ == "loss") {
    value = state.val_loss;
  } else if (state.val_metrics->contains(name_) && state.val_metrics->at(name_).is_number()) {
    value = state.val_metrics->at(name_).get<double>();
  }
  return value && std::isfinite(*value) ? value : std::nullopt;
}

Status JudgedMetric::CheckAmong(std::vector<std::string> names) const {
  names.insert(names.begin(), "loss");
  if (std::find(names.begin(), names.end(), name_) != names.end()) return OkStatus();
  return InvalidArgument("metric_for_best_model: an evaluation has no '", name_, "'",
                         DidYouMean(name_, names), "; it has ", absl::StrJoin(names, ", "));
}

}  // namespace tessera::train
