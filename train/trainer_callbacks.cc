// SPDX-License-Identifier: Apache-2.0
// The callbacks of a run: those that its configuration asks for, what they are told and ask for.
#include <algorithm>
#include <utility>

#include "base/file.h"
#include "nlohmann/json.hpp"
#include "train/callbacks/early_stopping.h"
#include "train/ranks/agreement.h"
#include "train/trainer_run.h"

namespace tessera::train {

Status Trainer::Run::MakeCallbacks() {
  own_callbacks_.clear();
  judged_.reset();
  best_ = nullptr;
  if (config_.early_stopping_patience || config_.load_best_model_at_end) {
    judged_ = JudgedMetric::Named(config_.metric_for_best_model, config_.greater_is_better);
    if (!validates()) {
      return InvalidArgument(
          config_.load_best_model_at_end ? "load_best_model_at_end" : "early_stopping_patience",
          " needs validation data (val_data, val_fraction)");
    }
    const EvaluationMetrics* metrics = data_.objective.metrics.get();
    if (parts_.evaluate.run == nullptr) {
      TESSERA_RETURN_IF_ERROR(CheckJudgedMetric(
          metrics == nullptr ? nlohmann::ordered_json::object()
                             : metrics->Finish(std::vector<double>(metrics->num_counts(), 0.0))));
    }
  }
  if (config_.load_best_model_at_end) {
    auto best = std::make_unique<BestModel>(*judged_);
    best_ = best.get();
    own_callbacks_.push_back(std::move(best));
  }
  if (config_.early_stopping_patience) {
    own_callbacks_.push_back(std::make_unique<EarlyStopping>(
        EarlyStoppingOptions{.metric = *judged_,
                             .patience = *config_.early_stopping_patience,
                             .threshold = config_.early_stopping_threshold}));
  }
  called_.clear();
  for (const auto& callback : own_callbacks_) called_.push_back(callback.get());
  called_.insert(called_.end(), callbacks_.begin(), callbacks_.end());
  for (size_t i = 0; i < called_.size(); ++i) {
    const auto same = [&](const TrainerCallback* c) { return c->name() == called_[i]->name(); };
    if (called_[i]->name().empty()) continue;
    if (std::any_of(called_.begin(), called_.begin() + static_cast<ptrdiff_t>(i), same)) {
      return InvalidArgument("two callbacks are named '", called_[i]->name(), "'");
    }
  }
  return OkStatus();
}

Status Trainer::Run::CheckJudgedMetric(const nlohmann::ordered_json& metrics) const {
  if (!judged_) return OkStatus();
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics.items()) names.push_back(name);
  return judged_->CheckAmong(std::move(names));
}

nlohmann::json Trainer::Run::CallbackStates() const {
  nlohmann::json states = nlohmann::json::object();
  for (const TrainerCallback* callback : called_) {
    if (!callback->name().empty()) states[callback->name()] = callback->State();
  }
  return states;
}

Status Trainer::Run::RestoreCallbacks(const ResumeState& saved) {
  nlohmann::json left = *saved.callbacks;
  for (TrainerCallback* callback : called_) {
    const std::string name = callback->name();
    if (name.empty()) continue;
    if (!left.contains(name)) {
      log_.Warning(
          Concat("the checkpoint knows nothing of the callback '", name, "', which begins afresh"));
      continue;
    }
    const Status restored = callback->Restore(left[name]);
    if (!restored.ok()) {
      return DataLoss("the checkpoint's state of the callback '", name, "' ", Message(restored));
    }
    left.erase(name);
  }
  for (const auto& [name, state] : left.items()) {
    log_.Warning(
        Concat("the checkpoint's run had a callback '", name, "', which this one has not"));
  }
  return OkStatus();
}

// One that was removed, or belongs to another run's folder, cannot be given back.
Status Trainer::Run::FindBest() {
  if (best_ == nullptr || !best_->found()) return OkStatus();
  const std::string path = dist::CheckpointPath(config_.out, best_->found()->step);
  if (GreatestOf(PathExists(path) ? 1 : 0, mesh_) != 0) return OkStatus();
  log_.Warning(Concat(path,
                      ", the best checkpoint so far, is gone; the best is that of the steps "
                      "from here on"));
  return best_->Restore(nlohmann::json::object());
}

// The program's callbacks need not decide alike on all ranks; the configuration's do.
TrainControl Trainer::Run::Asked() {
  TrainControl asked = control_;
  control_.log = control_.evaluate = control_.save = false;
  if (!ranks_ask_) return asked;
  const std::vector<int64_t> any =
      GreatestOf(std::vector<int64_t>{asked.log, asked.evaluate, asked.save}, mesh_);
  asked.log = any[0] != 0;
  asked.evaluate = any[1] != 0;
  asked.save = any[2] != 0;
  return asked;
}

StatusOr<std::string> Trainer::Run::RestoreBest() {
  if (best_ == nullptr) return std::string();
  if (!best_->found()) {
    log_.Warning(Concat("there is no best model (by ", best_->metric().row_name(),
                        "); the model is the last step's"));
    return std::string();
  }
  if (best_->found()->step == state_.step) return std::string();
  const std::string path = dist::CheckpointPath(config_.out, best_->found()->step);
  TESSERA_ASSIGN_OR_RETURN(const dist::Checkpoint best, checkpoints_.Open(path, log_));
  TESSERA_RETURN_IF_ERROR(LoadFrom(best));
  log_.Info(Concat("the model is the best one, of ", best_->Text()));
  return path;
}

}  // namespace tessera::train
