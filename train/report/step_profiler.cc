// SPDX-License-Identifier: Apache-2.0
#include "train/report/step_profiler.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/profiler.h"

namespace tessera::train {
namespace {

constexpr size_t kKernelsShown = 10;

std::string PathOfRank(const std::string& path, int rank) {
  if (rank == 0 || path.empty()) return path;
  std::filesystem::path file(path);
  const std::string extension = file.extension().string();
  file.replace_extension();
  return Concat(file.string(), ".rank", rank, extension);
}

// "   41.2 %     18.310 ms    48 x  matmul"
std::string Line(const ProfileTotal& total, double all_us) {
  return absl::StrFormat("  %5.1f %%  %10.3f ms  %6d x  %s", 100 * total.total_us / all_us,
                         total.total_us / 1e3, total.calls, total.name);
}

}  // namespace

StepProfiler::StepProfiler(const RunConfig& config, int rank, const RunLog* log)
    : path_(PathOfRank(config.profile, rank)),
      after_(config.profile_after),
      steps_(config.profile_steps),
      rank_(rank),
      log_(log) {}

StepProfiler::~StepProfiler() {
  if (running_) StopProfiler();
}

void StepProfiler::StepBegins(int64_t taken) {
  if (path_.empty()) return;
  if (taken == after_) {
    StartProfiler();
    begun_ = true;
    running_ = true;
  }
  if (taken == after_ + steps_) Finish();
}

void StepProfiler::Finish() {
  if (!path_.empty() && !begun_) {
    log_->Warning(Concat("profile: nothing was profiled, the run ended before step ", after_ + 1));
  }
  if (!running_) return;
  running_ = false;
  const Profile profile = StopProfiler();
  const Status written = profile.WriteChromeTrace(path_, rank_);
  if (written.ok()) {
    log_->Info(Concat("profile of ", steps_, " steps in ", path_));
  } else {
    log_->OwnWarning(Concat("profile: ", Message(written)));
  }
  const std::vector<ProfileTotal> totals = profile.Totals("kernel");
  double all_us = 0;
  for (const ProfileTotal& total : totals) all_us += total.total_us;
  log_->Info("the costliest kernels:");
  for (size_t i = 0; i < std::min(totals.size(), kKernelsShown); ++i) {
    log_->Info(Line(totals[i], std::max(all_us, 1.0)));
  }
}

}  // namespace tessera::train
