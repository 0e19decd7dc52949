// SPDX-License-Identifier: Apache-2.0
#include "train/report/step_profiler.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/profiler.h"
#include "train/report/step_summary.h"

namespace tessera::train {
namespace {

std::string PathOfRank(const std::string& path, int rank) {
  if (rank == 0 || path.empty()) return path;
  std::filesystem::path file(path);
  const std::string extension = file.extension().string();
  file.replace_extension();
  return Concat(file.string(), ".rank", rank, extension);
}

}  // namespace

StepProfiler::StepProfiler(const RunConfig& config, int rank, const Device& device,
                           const RunLog* log)
    : asked_(!config.profile.empty() || config.profile_summary),
      path_(PathOfRank(config.profile, rank)),
      after_(config.profile_after),
      steps_(config.profile_steps),
      rank_(rank),
      device_(device),
      log_(log) {}

StepProfiler::~StepProfiler() {
  if (running_) StopProfiler();
}

void StepProfiler::StepBegins(int64_t taken) {
  if (!asked_) return;
  if (taken == after_) {
    StartProfiler();
    begun_ = true;
    running_ = true;
    begin_ = std::chrono::steady_clock::now();
  }
  if (taken == after_ + steps_) Finish();
  taken_ = taken;
}

void StepProfiler::Finish() {
  if (asked_ && !begun_) {
    log_->Warning(Concat("profile: nothing was profiled, the run ended before step ", after_ + 1));
  }
  if (!running_) return;
  running_ = false;
  const Profile profile = StopProfiler();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
  const int64_t steps =
      std::clamp<int64_t>(taken_ + 1 - after_, 1, steps_);  // a run may end before
  if (!path_.empty()) {
    const Status written = profile.WriteChromeTrace(path_, rank_);
    if (written.ok()) {
      log_->Info(Concat("profile of ", steps, " steps in ", path_));
    } else {
      log_->OwnWarning(Concat("profile: ", Message(written)));
    }
  }
  const StepLimits limits = MeasureLimits(device_);
  for (const std::string& line : StepSummary(profile, steps, seconds.count(), limits)) {
    log_->Info(line);
  }
}

}  // namespace tessera::train
