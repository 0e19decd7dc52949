#include "train/resume_state.h"

#include <limits>

#include "train/config/run_config.h"

namespace tessera::train {
namespace {

std::optional<int64_t> IntegerIn(const nlohmann::json& saved, const char* key) {
  if (!saved.contains(key) || !saved[key].is_number_integer()) return std::nullopt;
  return saved[key].get<int64_t>();
}

}  // namespace

nlohmann::json ResumeState::ToJson() const {
  nlohmann::json saved = {{"loss_sum", loss_sum}, {"loss_steps", loss_steps}, {"config", config}};
  if (!finite) saved["finite"] = false;
  if (data_samples) saved["data_samples"] = *data_samples;
  if (global_batch) saved["global_batch"] = *global_batch;
  return saved;
}

StatusOr<ResumeState> ResumeState::Of(const dist::Checkpoint& checkpoint) {
  const nlohmann::json& saved = checkpoint.trainer();
  if (!saved.is_object() || !saved.contains("loss_sum") ||
      (!saved["loss_sum"].is_number() && !saved["loss_sum"].is_null()) ||
      !IntegerIn(saved, "loss_steps")) {
    return DataLoss(checkpoint.directory(), ": the trainer's state is missing");
  }
  // JSON has no word for what is not a number.
  const double loss_sum = saved["loss_sum"].is_null() ? std::numeric_limits<double>::quiet_NaN()
                                                      : saved["loss_sum"].get<double>();
  return ResumeState{.finite = IsFinite(saved),
                     .loss_sum = loss_sum,
                     .loss_steps = *IntegerIn(saved, "loss_steps"),
                     .data_samples = IntegerIn(saved, "data_samples"),
                     .global_batch = IntegerIn(saved, "global_batch"),
                     .config = saved.value("config", nlohmann::json::object())};
}

bool ResumeState::IsFinite(const nlohmann::json& saved) {
  return !saved.is_object() || saved.value("finite", true);
}

Status ResumeState::CheckData(const ResumeState& now, const std::string& checkpoint) const {
  if (!data_samples || data_samples == now.data_samples) return OkStatus();
  return InvalidArgument(checkpoint, ": the run was trained on ", *data_samples,
                         " samples; this data has ", *now.data_samples);
}

std::vector<std::string> ResumeState::ChangesTo(const ResumeState& now) const {
  std::vector<std::string> lines;
  for (const auto& [key, value] : now.config.items()) {
    const Option* option = FindRunConfigKey(key);
    const bool matters = option != nullptr && option->notes.changes_results;
    if (!matters || !config.contains(key) || config[key] == value) continue;
    lines.push_back(
        Concat(key, " is now ", value.dump(), "; the checkpoint's run had ", config[key].dump()));
  }
  if (global_batch && global_batch != now.global_batch) {
    lines.push_back(Concat("a step now takes ", *now.global_batch,
                           " samples; the checkpoint's run took ", *global_batch));
  }
  return lines;
}

}  // namespace tessera::train
