#include "train/run_report.h"

#include <algorithm>
#include <cstdio>

namespace tessera::train {
namespace {

std::string Rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", value);
  return text;
}

}  // namespace

StatusOr<std::unique_ptr<RunReport>> RunReport::Open(RunReportOptions options, const RunLog& log) {
  std::unique_ptr<RunReport> report(new RunReport(std::move(options)));
  const RunReportOptions& o = report->options_;
  if (!o.prints) return report;
  TESSERA_ASSIGN_OR_RETURN(MetricsLog file, MetricsLog::Open(o.folder, o.step, o.report_to));
  report->metrics_ = std::make_unique<MetricsLog>(std::move(file));
  report->progress_ =
      std::make_unique<Progress>(log.progress(), o.step, o.total_steps, o.steps_per_epoch, o.bar);
  return report;
}

Status RunReport::Write(const nlohmann::ordered_json& row) {
  return options_.write != nullptr ? options_.write(row, *metrics_) : metrics_->Append(row);
}

void RunReport::AddStep(const TrainState& state, int64_t tokens, double seconds) {
  sums_.loss += state.loss;
  ++sums_.steps;
  sums_.tokens += tokens;
  sums_.seconds += seconds;
  if (progress_ != nullptr) progress_->Step(state.step, state.loss);
}

Status RunReport::WriteSteps(const TrainState& state, const nlohmann::ordered_json& more) {
  const double loss = sums_.loss / static_cast<double>(std::max<int64_t>(sums_.steps, 1));
  const double rate = sums_.seconds > 0 ? static_cast<double>(sums_.tokens) / sums_.seconds : 0.0;
  sums_ = {};
  if (!options_.prints) return OkStatus();
  nlohmann::ordered_json row;
  row["step"] = state.step;
  row["loss"] = loss;
  row["lr"] = state.lr;
  row["grad_norm"] = state.grad_norm;
  row["tokens_per_second"] = rate;
  for (const auto& [name, value] : more.items()) row[name] = value;
  TESSERA_RETURN_IF_ERROR(Write(row));
  progress_->Row(state.step, loss, state.lr, rate);
  return OkStatus();
}

Status RunReport::WriteEvaluation(const TrainState& state,
                                  const std::vector<std::string>& samples) {
  if (!options_.prints) return OkStatus();
  nlohmann::ordered_json row;
  row["step"] = state.step;
  row["val_loss"] = *state.val_loss;
  std::string text = Concat("step ", state.step, "  val_loss ", Rounded(*state.val_loss));
  for (const auto& [name, value] : state.val_metrics.items()) {
    row["val_" + name] = value;
    text += Concat("  ", name, " ", Rounded(value.get<double>()));
  }
  TESSERA_RETURN_IF_ERROR(Write(row));
  progress_->Message(text);
  for (const std::string& line : samples) progress_->Message(line);
  return OkStatus();
}

}  // namespace tessera::train
