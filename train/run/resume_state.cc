// SPDX-License-Identifier: Apache-2.0
#include "train/run/resume_state.h"

#include <limits>

#include "base/json_ordered.h"
#include "base/options.h"
#include "nlohmann/json.hpp"
#include "train/callbacks/best_model.h"
#include "train/config/run_config.h"

namespace tessera::train {
namespace {

std::optional<int64_t> IntegerIn(const nlohmann::json& saved, const char* key) {
  if (!saved.contains(key) || !saved[key].is_number_integer()) return std::nullopt;
  return saved[key].get<int64_t>();
}

// JSON has no word for what is not a number: null.
std::optional<double> NumberIn(const nlohmann::json& saved, const char* key) {
  if (!saved.is_object() || !saved.contains(key)) return std::nullopt;
  if (saved[key].is_null()) return std::numeric_limits<double>::quiet_NaN();
  return saved[key].is_number() ? std::optional(saved[key].get<double>()) : std::nullopt;
}

std::string TextIn(const nlohmann::json& saved, const char* key) {
  const bool has = saved.contains(key) && saved[key].is_string();
  return has ? saved[key].get<std::string>() : std::string();
}

std::optional<data::DataPosition> PositionIn(const nlohmann::json& saved, int64_t step) {
  const auto samples = IntegerIn(saved, "samples");
  const auto epoch = IntegerIn(saved, "data_epoch");
  const auto index = IntegerIn(saved, "data_index");
  if (!samples || !epoch || !index || *samples < 0 || *epoch < 0 || *index < 0) return std::nullopt;
  return data::DataPosition{.step = step, .samples = *samples, .epoch = *epoch, .index = *index};
}

std::vector<double> NumbersIn(const nlohmann::json& saved, const char* key) {
  std::vector<double> numbers;
  if (!saved.contains(key) || !saved[key].is_array()) return numbers;
  for (const nlohmann::json& number : saved[key]) {
    numbers.push_back(number.is_number() ? number.get<double>()
                                         : std::numeric_limits<double>::quiet_NaN());
  }
  return numbers;
}

}  // namespace

nlohmann::json ResumeState::ToJson() const {
  nlohmann::json saved = {{"loss_sum", loss_sum}, {"loss_steps", loss_steps}, {"config", *config}};
  if (!loss_counts.empty()) saved["loss_counts"] = loss_counts;
  if (!state->is_null()) saved["state"] = *state;
  if (total_steps) saved["total_steps"] = *total_steps;
  if (!epoch->is_null()) saved["epoch"] = *epoch;
  if (!callbacks->empty()) saved["callbacks"] = *callbacks;
  if (!finite) saved["finite"] = false;
  if (data_samples) saved["data_samples"] = *data_samples;
  if (global_batch) saved["global_batch"] = *global_batch;
  if (position) {
    saved["samples"] = position->samples;
    saved["data_epoch"] = position->epoch;
    saved["data_index"] = position->index;
  }
  if (length_group > 0) saved["length_group"] = length_group;
  if (!data_digest.empty()) saved["data_digest"] = data_digest;
  if (evaluation_due) saved["evaluation_due"] = true;
  if (epoch_end_due) saved["epoch_end_due"] = true;
  return saved;
}

StatusOr<ResumeState> ResumeState::Of(const dist::Checkpoint& checkpoint) {
  const nlohmann::json& saved = checkpoint.trainer();
  if (!saved.is_object() || !saved.contains("loss_sum") ||
      (!saved["loss_sum"].is_number() && !saved["loss_sum"].is_null()) ||
      !IntegerIn(saved, "loss_steps")) {
    return DataLoss(checkpoint.directory(), ": the trainer's state is missing");
  }
  const double loss_sum = *NumberIn(saved, "loss_sum");
  return ResumeState{.finite = IsFinite(saved),
                     .loss_sum = loss_sum,
                     .loss_steps = *IntegerIn(saved, "loss_steps"),
                     .loss_counts = NumbersIn(saved, "loss_counts"),
                     .state = saved.value("state", nlohmann::json()),
                     .total_steps = IntegerIn(saved, "total_steps"),
                     .epoch = saved.value("epoch", nlohmann::json()),
                     .callbacks = saved.value("callbacks", nlohmann::json::object()),
                     .data_samples = IntegerIn(saved, "data_samples"),
                     .global_batch = IntegerIn(saved, "global_batch"),
                     .position = PositionIn(saved, checkpoint.step()),
                     .length_group = IntegerIn(saved, "length_group").value_or(0),
                     .data_digest = TextIn(saved, "data_digest"),
                     .evaluation_due = saved.value("evaluation_due", false),
                     .epoch_end_due = saved.value("epoch_end_due", false),
                     .config = saved.value("config", nlohmann::json::object())};
}

bool ResumeState::IsFinite(const nlohmann::json& saved) {
  return !saved.is_object() || saved.value("finite", true);
}

std::optional<int64_t> ResumeState::BestStep(const nlohmann::json& saved) {
  if (!saved.is_object() || !saved.contains("callbacks")) return std::nullopt;
  const nlohmann::json& callbacks = saved["callbacks"];
  if (!callbacks.is_object() || !callbacks.contains(BestModel::kName)) return std::nullopt;
  return BestModel::StepOf(callbacks[BestModel::kName]);
}

nlohmann::json ResumeState::StateToJson(const TrainState& state) {
  nlohmann::json saved = {{"loss", state.loss}, {"grad_norm", state.grad_norm}, {"lr", state.lr}};
  if (state.skipped_steps > 0) saved["skipped_steps"] = state.skipped_steps;
  if (state.usual_loss) saved["usual_loss"] = *state.usual_loss;
  if (!state.val_loss) return saved;
  saved["val_loss"] = *state.val_loss;
  saved["val_metrics"] = state.val_metrics->dump();  // which keeps the order of their names
  return saved;
}

void ResumeState::RestoreState(TrainState* to) const {
  to->loss = NumberIn(*state, "loss").value_or(0);
  to->grad_norm = NumberIn(*state, "grad_norm").value_or(0);
  to->lr = NumberIn(*state, "lr").value_or(0);
  to->usual_loss = NumberIn(*state, "usual_loss");
  if (state->is_object()) to->skipped_steps = IntegerIn(*state, "skipped_steps").value_or(0);
  to->val_loss = NumberIn(*state, "val_loss");
  const std::string* const text = state->is_object() && state->contains("val_metrics")
                                      ? state->at("val_metrics").get_ptr<const std::string*>()
                                      : nullptr;
  if (!to->val_loss || text == nullptr) return;
  auto metrics = ParseOrderedJson(*text, "val_metrics").value_or(nullptr);
  if (metrics.is_object()) to->val_metrics = std::move(metrics);
}

Status ResumeState::CheckData(const ResumeState& now, const std::string& checkpoint) const {
  if (!data_samples || data_samples == now.data_samples) return OkStatus();
  return InvalidArgument(checkpoint, ": the run was trained on ", *data_samples,
                         " samples; this data has ", *now.data_samples);
}

data::DataPosition ResumeState::PositionAt(int64_t step, int64_t samples_per_epoch) const {
  if (position) return *position;
  const int64_t samples = step * global_batch.value_or(1);
  return {.step = step,
          .samples = samples,
          .epoch = samples / samples_per_epoch,
          .index = samples % samples_per_epoch};
}

std::vector<std::string> ResumeState::ChangesTo(const ResumeState& now) const {
  std::vector<std::string> lines;
  for (const auto& [key, value] : now.config->items()) {
    const Option* option = FindRunConfigKey(key);
    const bool matters = option != nullptr && option->notes.changes_results;
    if (!matters || !config->contains(key) || config->at(key) == value) continue;
    lines.push_back(Concat(key, " is now ", value.dump(), "; the checkpoint's run had ",
                           config->at(key).dump()));
  }
  if (global_batch && global_batch != now.global_batch) {
    lines.push_back(Concat("a step now takes ", *now.global_batch,
                           " samples; the checkpoint's run took ", *global_batch));
  }
  if (!data_digest.empty() && !now.data_digest.empty() && data_digest != now.data_digest) {
    lines.push_back(
        "the files of data are not those of the checkpoint's run: their contents differ");
  }
  return lines;
}

}  // namespace tessera::train
