#include "train/step_profiler.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

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
  char text[64];
  std::snprintf(text, sizeof(text), "  %5.1f %%  %10.3f ms  %6lld x  ",
                100 * total.total_us / all_us, total.total_us / 1e3,
                static_cast<long long>(total.calls));
  return text + total.name;
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

absl::Status StepProfiler::StepBegins(int64_t taken) {
  if (path_.empty()) return absl::OkStatus();
  if (taken == after_) {
    StartProfiler();
    running_ = true;
  }
  return taken == after_ + steps_ ? Finish() : absl::OkStatus();
}

absl::Status StepProfiler::Finish() {
  if (!running_) return absl::OkStatus();
  running_ = false;
  const Profile profile = StopProfiler();
  TESSERA_RETURN_IF_ERROR(profile.WriteChromeTrace(path_, rank_));
  const std::vector<ProfileTotal> totals = profile.Totals("kernel");
  double all_us = 0;
  for (const ProfileTotal& total : totals) all_us += total.total_us;
  log_->Info(Concat("profile of ", steps_, " steps in ", path_, "; the costliest kernels:"));
  for (size_t i = 0; i < std::min(totals.size(), kKernelsShown); ++i) {
    log_->Info(Line(totals[i], std::max(all_us, 1.0)));
  }
  return absl::OkStatus();
}

}  // namespace tessera::train
