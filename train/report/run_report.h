// SPDX-License-Identifier: Apache-2.0
// What a run tells while it goes: rows of metrics, of epochs and of samples, the progress on the
// terminal, and what adds up between two rows.
//
//   TESSERA_ASSIGN_OR_RETURN(auto report, RunReport::Open({.folder = config.out, ...}, log));
//   report->AddStep(state);                                                // after every step
//   TESSERA_ASSIGN_OR_RETURN(row, report->WriteSteps(state, {{"peak_bytes", bytes}}));
//   TESSERA_RETURN_IF_ERROR(report->WriteEvaluation(state, samples));
//   TESSERA_RETURN_IF_ERROR(report->WriteEpoch(state, {{"peak_bytes", bytes}}));
//
// Below the run's folder: `metrics.jsonl` (train/report/metrics_log.h), `epochs.jsonl`, a row for
// every pass over the data (the mean loss, tokens/s, seconds in steps, what its last evaluation
// found), and `samples.jsonl`, what the model wrote at evaluations. Every rank has a report; the
// rank that prints writes and shows, the others add up.
#ifndef TESSERA_TRAIN_REPORT_RUN_REPORT_H_
#define TESSERA_TRAIN_REPORT_RUN_REPORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json_member.h"
#include "base/status.h"
#include "data/dataset/sampler.h"
#include "nlohmann/json_fwd.hpp"
#include "train/report/metrics_log.h"
#include "train/report/progress.h"
#include "train/report/row_file.h"
#include "train/report/run_log.h"
#include "train/train_state.h"

namespace tessera::train {

// What has been added up since the last row.
struct StepSums {
  double loss = 0;
  int64_t steps = 0;
  int64_t tokens = 0;
  double seconds = 0;
  std::vector<double> counts = {};  // what losses count (train/engine/step_parts.h)

  void Add(const TrainState& state);
  double MeanLoss() const;
  double TokensPerSecond() const;
};

// Of an epoch under way: its steps, and the row of its last evaluation.
struct EpochSums {
  StepSums steps;
  OrderedJsonMember evaluation = OrderedJsonMember::Object();

  nlohmann::json ToJson() const;
  // Of what ToJson gave; anything else is an epoch without a step.
  static EpochSums Of(const nlohmann::json& saved);
};

// What a report prints and writes, and where in the run it begins.
struct RunReportOptions {
  bool prints = true;
  std::string folder;  // of the files
  // Other forms of its rows: train/report/metrics_log.h.
  std::vector<std::string> report_to = {};
  int64_t step = 0;  // rows of later steps are gone: they are about to come again
  int64_t total_steps = 0;
  double steps_per_epoch = 1;
  int64_t samples_per_step = 1;
  data::DataPosition position =
      {};  // where the run begins; the global batch may have changed there
  // What follows `step` again: its evaluation, the end of its epoch.
  bool evaluation_due = false;
  bool epoch_end_due = false;
  bool bar = true;  // where there is a terminal
  // Of a run that continues.
  StepSums sums = {};
  EpochSums epoch = {};
  // Writes a row of metrics; nullptr: appends it to the file.
  std::function<Status(const nlohmann::ordered_json& row, MetricsLog& file)> write = nullptr;
};

class RunReport {
 public:
  static StatusOr<std::unique_ptr<RunReport>> Open(RunReportOptions options, const RunLog& log);

  // Removes the files of a run.
  static Status Remove(const std::string& folder);

  // `counts`: what the step's losses have counted; always as many, or none.
  void AddStep(const TrainState& state, const std::vector<double>& counts = {});
  // A row of the steps since the last one, `more` behind it; returned. The sums begin anew.
  StatusOr<nlohmann::ordered_json> WriteSteps(const TrainState& state,
                                              const nlohmann::ordered_json& more);
  // A row of what an evaluation found, and lines of `samples`.
  Status WriteEvaluation(const TrainState& state, const std::vector<std::string>& samples);
  // A row of the epoch that ended, `more` behind it. The next one's sums begin.
  Status WriteEpoch(const TrainState& state, const nlohmann::ordered_json& more);

  const StepSums& sums() const { return sums_; }
  const EpochSums& epoch() const { return epoch_; }

 private:
  // Of the rank that prints.
  struct Files {
    MetricsLog metrics;
    RowFile epochs;
    std::optional<RowFile> samples;  // where the run has any
    Progress progress;
  };
  explicit RunReport(RunReportOptions options)
      : options_(std::move(options)), sums_(options_.sums), epoch_(options_.epoch) {}
  Status OpenSamples();
  Status Write(const nlohmann::ordered_json& row);

  const RunReportOptions options_;
  StepSums sums_;
  EpochSums epoch_;
  std::unique_ptr<Files> files_;  // null on the other ranks
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_REPORT_RUN_REPORT_H_
