// What a run tells while it goes: rows of metrics, the progress on the terminal, and what adds up
// between two rows.
//
//   TESSERA_ASSIGN_OR_RETURN(auto report, RunReport::Open({.folder = config.out, ...}, log));
//   report->AddStep(state, tokens, seconds);             // after every step
//   TESSERA_RETURN_IF_ERROR(report->WriteSteps(state, {{"peak_bytes", bytes}}));
//   TESSERA_RETURN_IF_ERROR(report->WriteEvaluation(state));
//
// Every rank has one; the rank that prints writes and shows, the others add up.
#ifndef TESSERA_TRAIN_RUN_REPORT_H_
#define TESSERA_TRAIN_RUN_REPORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "nlohmann/json.hpp"
#include "train/metrics_log.h"
#include "train/progress.h"
#include "train/run_log.h"
#include "train/train_state.h"

namespace tessera::train {

// What has been added up since the last row of metrics.
struct StepSums {
  double loss = 0;
  int64_t steps = 0;
  int64_t tokens = 0;
  double seconds = 0;
};

struct RunReportOptions {
  bool prints = true;
  std::string folder;  // of `metrics.jsonl`
  // Other forms of its rows: train/metrics_log.h.
  std::vector<std::string> report_to = {};
  int64_t step = 0;  // rows of later steps are gone: they are about to come again
  int64_t total_steps = 0;
  double steps_per_epoch = 1;
  bool bar = true;     // where there is a terminal
  StepSums sums = {};  // of a run that goes on
  // Writes a row; nullptr: appends it to the file.
  std::function<Status(const nlohmann::ordered_json& row, MetricsLog& file)> write = nullptr;
};

class RunReport {
 public:
  static StatusOr<std::unique_ptr<RunReport>> Open(RunReportOptions options, const RunLog& log);

  void AddStep(const TrainState& state, int64_t tokens, double seconds);
  // A row of the steps since the last one, `more` behind it. The sums begin anew.
  Status WriteSteps(const TrainState& state, const nlohmann::ordered_json& more);
  // A row of what an evaluation found, and lines of `samples`.
  Status WriteEvaluation(const TrainState& state, const std::vector<std::string>& samples);

  const StepSums& sums() const { return sums_; }

 private:
  explicit RunReport(RunReportOptions options)
      : options_(std::move(options)), sums_(options_.sums) {}
  Status Write(const nlohmann::ordered_json& row);

  const RunReportOptions options_;
  StepSums sums_;
  std::unique_ptr<MetricsLog> metrics_;  // of the rank that prints, as is the progress
  std::unique_ptr<Progress> progress_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RUN_REPORT_H_
