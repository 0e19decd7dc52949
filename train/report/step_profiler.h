// SPDX-License-Identifier: Apache-2.0
// `profile` and `profile_summary`: a Chrome trace of some steps of a run, and where the time of a
// step goes (step_summary.h).
//
//   StepProfiler profiler(config, rank, device, &log);
//   profiler.StepBegins(steps_taken_by_this_process);   // before each step
//   profiler.Finish();                                  // after the last
//
// Every rank writes a trace: rank 0 to the file that is named, rank r with ".rank<r>" before its
// extension. One profile is under way in a process at a time. What goes wrong with it is a warning:
// a run is worth more than its profile.
#ifndef TESSERA_TRAIN_REPORT_STEP_PROFILER_H_
#define TESSERA_TRAIN_REPORT_STEP_PROFILER_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "core/device.h"
#include "train/config/run_config.h"
#include "train/report/run_log.h"

namespace tessera::train {

class StepProfiler {
 public:
  StepProfiler(const RunConfig& config, int rank, const Device& device, const RunLog* log);
  ~StepProfiler();
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  void StepBegins(int64_t taken);
  void Finish();

 private:
  const bool asked_;
  const std::string path_;  // empty: no trace is written
  const int64_t after_;
  const int64_t steps_;
  const int rank_;
  const Device device_;
  const RunLog* const log_;
  int64_t taken_ = 0;  // at the last StepBegins
  bool begun_ = false;
  bool running_ = false;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_REPORT_STEP_PROFILER_H_
