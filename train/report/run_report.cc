// SPDX-License-Identifier: Apache-2.0
#include "train/report/run_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/file.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

using Row = nlohmann::ordered_json;

constexpr char kEpochs[] = "epochs.jsonl";
constexpr char kSamples[] = "samples.jsonl";

std::string Rounded(double value) { return absl::StrFormat("%.4f", value); }

// How many epochs lie before the first of these steps, were all of them as long as those to come.
double EpochsBehind(const RunReportOptions& options) {
  return static_cast<double>(options.position.epoch) +
         static_cast<double>(options.position.index) /
             (options.steps_per_epoch * static_cast<double>(options.samples_per_step));
}

// JSON has no word for what is not a number.
double NumberIn(const nlohmann::json& saved, const char* key) {
  if (!saved.contains(key) || !saved[key].is_number()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return saved[key].get<double>();
}

}  // namespace

// --- What adds up --------------------------------------------------------------------------------

void StepSums::Add(const TrainState& state) {
  if (state.has_targets) {
    loss += state.loss;
    ++steps;
  }
  tokens += state.tokens;
  seconds += state.seconds;
}

double StepSums::MeanLoss() const {
  return loss / static_cast<double>(std::max<int64_t>(steps, 1));
}

double StepSums::TokensPerSecond() const {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

nlohmann::json EpochSums::ToJson() const {
  return {{"loss", steps.loss},
          {"steps", steps.steps},
          {"tokens", steps.tokens},
          {"seconds", steps.seconds},
          {"evaluation", evaluation->dump()}};  // which keeps the order of its names
}

EpochSums EpochSums::Of(const nlohmann::json& saved) {
  for (const char* key : {"steps", "tokens"}) {
    if (!saved.is_object() || !saved.contains(key) || !saved[key].is_number_integer()) return {};
  }
  EpochSums sums;
  sums.steps = {.loss = NumberIn(saved, "loss"),
                .steps = saved["steps"].get<int64_t>(),
                .tokens = saved["tokens"].get<int64_t>(),
                .seconds = NumberIn(saved, "seconds")};
  if (!saved.contains("evaluation") || !saved["evaluation"].is_string()) return sums;
  Row evaluation = Row::parse(saved["evaluation"].get<std::string>(), nullptr, false);
  if (evaluation.is_object()) sums.evaluation = std::move(evaluation);
  return sums;
}

// --- The report ----------------------------------------------------------------------------------

StatusOr<std::unique_ptr<RunReport>> RunReport::Open(RunReportOptions options, const RunLog& log) {
  std::unique_ptr<RunReport> report(new RunReport(std::move(options)));
  const RunReportOptions& o = report->options_;
  if (!o.prints) return report;
  TESSERA_ASSIGN_OR_RETURN(
      MetricsLog metrics,
      MetricsLog::Open(o.folder, o.step, o.report_to, o.evaluation_due ? "val_loss" : nullptr));
  TESSERA_ASSIGN_OR_RETURN(RowFile epochs,
                           RowFile::Open(JoinPath(o.folder, kEpochs), o.step, nullptr,
                                         o.epoch_end_due ? "epoch" : nullptr));
  report->files_.reset(new Files{.metrics = std::move(metrics),
                                 .epochs = std::move(epochs),
                                 .samples = std::nullopt,
                                 .progress = {log.progress(), o.step, o.total_steps,
                                              o.steps_per_epoch, EpochsBehind(o), o.bar}});
  // By the folder's list: a path of which the system cannot tell counts as one that exists.
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(o.folder));
  if (std::ranges::find(names, kSamples) != names.end()) {
    TESSERA_RETURN_IF_ERROR(report->OpenSamples());
  }
  return report;
}

Status RunReport::OpenSamples() {
  TESSERA_ASSIGN_OR_RETURN(
      files_->samples, RowFile::Open(JoinPath(options_.folder, kSamples), options_.step, nullptr,
                                     options_.evaluation_due ? "samples" : nullptr));
  return OkStatus();
}

Status RunReport::Remove(const std::string& folder) {
  TESSERA_RETURN_IF_ERROR(MetricsLog::Remove(folder));
  TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(folder, kEpochs)));
  return RemoveAll(JoinPath(folder, kSamples));
}

Status RunReport::Write(const Row& row) {
  return options_.write != nullptr ? options_.write(row, files_->metrics)
                                   : files_->metrics.Append(row);
}

void RunReport::AddStep(const TrainState& state, const std::vector<double>& counts) {
  sums_.Add(state);
  sums_.counts.resize(counts.size(), 0.0);
  for (size_t i = 0; i < counts.size(); ++i) sums_.counts[i] += counts[i];
  epoch_.steps.Add(state);
  if (files_ != nullptr && state.has_targets) files_->progress.Step(state.step, state.loss);
}

StatusOr<Row> RunReport::WriteSteps(const TrainState& state, const Row& more) {
  const StepSums sums = std::exchange(sums_, {});
  Row row;
  row["step"] = state.step;
  row["samples"] = state.samples;
  row["loss"] = sums.MeanLoss();
  row["lr"] = state.lr;
  row["grad_norm"] = state.grad_norm;
  row["tokens_per_second"] = sums.TokensPerSecond();
  for (const auto& [name, value] : state.auxiliaries) {
    if (row.contains(name)) {
      return InvalidArgument("the model adds a loss '", name, "', as rows of metrics call another ",
                             "number (AddAuxiliary)");
    }
    row[name] = value;
  }
  std::string notes;
  if (state.loss_scale) {
    row["loss_scale"] = *state.loss_scale;
    row["skipped_steps"] = state.skipped_steps;
    notes = Concat("  loss_scale ", *state.loss_scale);
    if (state.skipped_steps > 0) notes += Concat("  skipped ", state.skipped_steps);
  }
  for (const auto& [name, value] : more.items()) row[name] = value;
  if (files_ == nullptr) return row;
  TESSERA_RETURN_IF_ERROR(Write(row));
  files_->progress.Row(state.step, sums.MeanLoss(), state.lr, sums.TokensPerSecond(), notes);
  return row;
}

Status RunReport::WriteEvaluation(const TrainState& state,
                                  const std::vector<std::string>& samples) {
  Row row;
  row["step"] = state.step;
  row["val_loss"] = *state.val_loss;
  std::string text = Concat("step ", state.step, "  val_loss ", Rounded(*state.val_loss));
  for (const auto& [name, value] : state.val_metrics->items()) {
    row["val_" + name] = value;
    text += Concat("  ", name, " ", Rounded(value.get<double>()));
  }
  epoch_.evaluation = row;
  epoch_.evaluation->erase("step");
  if (files_ == nullptr) return OkStatus();
  TESSERA_RETURN_IF_ERROR(Write(row));
  files_->progress.Message(text);
  for (const std::string& line : samples) files_->progress.Message(line);
  if (samples.empty()) return OkStatus();
  if (!files_->samples) TESSERA_RETURN_IF_ERROR(OpenSamples());
  return files_->samples->Append({{"step", state.step}, {"samples", samples}});
}

Status RunReport::WriteEpoch(const TrainState& state, const Row& more) {
  const EpochSums epoch = std::exchange(epoch_, {});
  if (files_ == nullptr) return OkStatus();
  Row row;
  row["epoch"] = static_cast<int64_t>(std::floor(state.epoch));
  row["step"] = state.step;
  if (epoch.steps.steps > 0) row["loss"] = epoch.steps.MeanLoss();
  row["tokens_per_second"] = epoch.steps.TokensPerSecond();
  row["seconds"] = epoch.steps.seconds;
  for (const auto& [name, value] : more.items()) row[name] = value;
  for (const auto& [name, value] : epoch.evaluation->items()) row[name] = value;
  return files_->epochs.Append(row);
}

}  // namespace tessera::train
