// SPDX-License-Identifier: Apache-2.0
#include "train/plan/memory_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/allocator.h"
#include "train/plan/fit.h"
#include "train/plan/plan.h"

namespace tessera::train {
namespace {

// The part of the run that has the greatest peak of all ranks.
std::string GreatestPhase(const Plan& plan) {
  const auto rank = std::max_element(
      plan.ranks.begin(), plan.ranks.end(),
      [](const RankPlan& a, const RankPlan& b) { return a.peak_bytes < b.peak_bytes; });
  const auto phase =
      std::max_element(rank->peaks.begin(), rank->peaks.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return phase == rank->peaks.end() ? "" : Concat(" (", phase->first, ")");
}

// Of which each rank has its share.
double ShareOf(const MemoryThere& there) {
  const double bytes = Allocator::For(there.device).available_bytes();
  return there.device.is_cpu() ? bytes / there.local_ranks : bytes;
}

std::string OwnerOf(const MemoryThere& there) {
  if (!there.device.is_cpu()) return Concat(there.device, " has ");
  if (there.local_ranks == 1) return "this machine has ";
  return Concat("this machine has, for each of its ", there.local_ranks, " ranks, ");
}

}  // namespace

std::string BytesText(double bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 || bytes >= 100 ? "%.0f %s" : "%.3g %s", bytes,
                kUnits[unit]);
  return text;
}

StatusOr<std::string> CheckMemory(const OpenedRun& run, const MemoryThere& there) {
  PlanOptions options = {.ranks = there.ranks, .cache = there.scratch, .rehearse_all = 0};
  StatusOr<Plan> plan = PlanOf(run, options);
  if (!plan.ok()) return "its memory cannot be planned: " + Message(plan.status());
  const auto peak = static_cast<double>(plan->peak_bytes());
  const double free = ShareOf(there);
  const std::string takes = Concat(there.ranks == 1 ? "the run takes " : "a rank takes ",
                                   BytesText(peak), " at its peak", GreatestPhase(*plan));
  if (peak <= free) return takes;
  std::string nearest = "; no other layout of so many ranks fits";
  const StatusOr<std::optional<FittedLayout>> found =
      NearestLayout(run.setup->config, options, static_cast<int64_t>(free));
  if (!found.ok()) {
    nearest = "; other layouts cannot be planned: " + Message(found.status());
  } else if (*found) {
    nearest = Concat("; with ", (*found)->Flags(), " it takes ",
                     BytesText(static_cast<double>((*found)->plan.peak_bytes())));
  }
  return Failure(StatusCode::kResourceExhausted, takes, ", and ", OwnerOf(there), BytesText(free),
                 " free", nearest, " (check_memory false starts it all the same)");
}

}  // namespace tessera::train
