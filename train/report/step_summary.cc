// SPDX-License-Identifier: Apache-2.0
#include "train/report/step_summary.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "autograd/autograd.h"
#include "base/text_builder.h"
#include "core/cpu/peaks.h"
#include "core/tensor.h"
#include "core/thread_pool.h"
#include "ops/matmul/matmul.h"

namespace tessera::train {
namespace {

constexpr size_t kRowsShown = 20;

struct Row {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;
  double least = 0;  // at the limit
  double flops = 0;
  double bytes = 0;
  bool has_limit = true;

  double above() const { return has_limit ? std::max(0.0, seconds - least) : seconds; }
  void Add(const Row& other) {
    calls += other.calls;
    seconds += other.seconds;
    least += other.least;
    flops += other.flops;
    bytes += other.bytes;
    has_limit &= other.has_limit;
  }
};

// The rate of its products, or of its bytes where it has none.
std::string RateOf(const Row& row) {
  if (row.seconds <= 0 || !row.has_limit) return "";
  if (row.flops > 0) return absl::StrFormat("%.1f GFLOP/s", row.flops / row.seconds / 1e9);
  return absl::StrFormat("%.1f GB/s", row.bytes / row.seconds / 1e9);
}

std::string Line(const Row& row, double step_seconds) {
  const std::string limit =
      row.has_limit && row.seconds > 0
          ? absl::StrFormat("%5.1f %%", std::min(100.0, 100 * row.least / row.seconds))
          : "      -";
  return absl::StrFormat("%7.1f %% %10.3f ms %10.3f ms %7.1f %16s  %s  %s",
                         100 * row.seconds / step_seconds, 1e3 * row.seconds, 1e3 * row.above(),
                         static_cast<double>(row.calls), RateOf(row), limit, row.name);
}

// Of each phase the time that no kernel of its thread takes, in seconds.
std::map<std::string, double> OutsideOfKernels(const Profile& profile) {
  std::map<std::string, double> outside;
  for (const ProfileEvent& phase : profile.events) {
    if (phase.category != "phase") continue;
    double us = phase.duration_us;
    const double end = phase.begin_us + phase.duration_us;
    for (const ProfileEvent& kernel : profile.events) {
      const bool within = kernel.category == "kernel" && kernel.thread == phase.thread &&
                          kernel.begin_us >= phase.begin_us && kernel.begin_us < end;
      if (within) us -= kernel.duration_us;
    }
    outside[phase.name] += std::max(0.0, us) / 1e6;
  }
  return outside;
}

// Takes the evaluations out of a profile, with all that happens in them; returns their seconds.
double TakeOutEvaluations(std::vector<ProfileEvent>* events) {
  std::vector<ProfileEvent> evaluations;
  for (const ProfileEvent& event : *events) {
    if (event.category == "evaluation") evaluations.push_back(event);
  }
  std::erase_if(*events, [&](const ProfileEvent& event) {
    return std::any_of(evaluations.begin(), evaluations.end(), [&](const ProfileEvent& e) {
      return event.begin_us >= e.begin_us && event.begin_us <= e.begin_us + e.duration_us;
    });
  });
  double us = 0;
  for (const ProfileEvent& evaluation : evaluations) us += evaluation.duration_us;
  return us / 1e6;
}

template <typename F>
double SecondsOfBest(const Device& device, const F& run) {
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    SynchronizeDevice(device);
    const auto begin = std::chrono::steady_clock::now();
    run();
    SynchronizeDevice(device);
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

StepLimits LimitsOfGpu(const Device& device) {
  constexpr int64_t kSide = 4096;
  const NoGrad no_grad;
  std::map<DType, double> rates;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const Tensor a = Full({kSide, kSide}, 0.5, dtype, device);
    rates[dtype] = 2.0 * kSide * kSide * kSide /
                   SecondsOfBest(device, [&] { static_cast<void>(Matmul(a, a)); });
  }
  const Tensor from = Full({int64_t{64} << 20}, 1.0, DType::kFloat32, device);
  const Tensor to = EmptyLike(from);
  const double bandwidth = 2.0 * static_cast<double>(from.numel()) * sizeof(float) /
                           SecondsOfBest(device, [&] { CopyInto(to, from); });
  const double float32 = rates[DType::kFloat32];
  return {.measured =
              absl::StrFormat("products %.1f TFLOP/s (float32), %.1f (bfloat16), a copy %.0f GB/s",
                              float32 / 1e12, rates[DType::kBFloat16] / 1e12, bandwidth / 1e9),
          .peak = "a large float32 product's rate",
          .flops = float32,
          .least_seconds = [rates, bandwidth, float32](const KernelWork& work) {
            const auto rate = rates.find(work.products);
            return std::max(work.flops / (rate == rates.end() ? float32 : rate->second),
                            work.bytes / bandwidth);
          }};
}

}  // namespace

StepLimits MeasureLimits(const Device& device) {
  if (!device.is_cpu()) return LimitsOfGpu(device);
  const CpuPeaks peaks = MeasurePeaks(NumThreads());
  const double halves = peaks.ProductRate(DType::kBFloat16);
  return {.measured = absl::StrFormat(
              "%d %s: %.1f GFLOP/s of FMA (float32), %.1f of bfloat16, memory %.1f GB/s",
              peaks.threads, peaks.threads == 1 ? "thread" : "threads", peaks.fma_flops / 1e9,
              halves / 1e9, peaks.levels.back().read / 1e9),
          .peak = "the FMA peak",
          .flops = peaks.fma_flops,
          .least_seconds = [peaks](const KernelWork& work) { return peaks.LeastSeconds(work); }};
}

std::vector<std::string> StepSummary(Profile profile, int64_t steps, double seconds,
                                     const StepLimits& limits) {
  const double step_seconds =
      (seconds - TakeOutEvaluations(&profile.events)) / static_cast<double>(steps);
  std::map<std::string, Row> by_name;
  Row all = {.name = "kernels"};
  for (const ProfileEvent& event : profile.events) {
    if (event.category != "kernel") continue;
    const KernelWork& work = event.work;
    const Row one = {.name = "",
                     .calls = 1,
                     .seconds = event.duration_us / 1e6,
                     .least = limits.least_seconds(work),
                     .flops = work.flops,
                     .bytes = work.bytes,
                     .has_limit = work.flops > 0 || work.bytes > 0};
    Row& row = by_name[work.detail.empty() ? event.name : Concat(event.name, " ", work.detail)];
    row.Add(one);
    all.Add(one);
  }
  std::vector<Row> rows;
  for (auto& [name, row] : by_name) {
    rows.push_back(row);
    rows.back().name = name;
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.above() != b.above() ? a.above() > b.above() : a.name < b.name;
  });
  if (rows.size() > kRowsShown + 1) {
    Row rest = {.name = Concat(rows.size() - kRowsShown, " other kinds")};
    for (size_t i = kRowsShown; i < rows.size(); ++i) rest.Add(rows[i]);
    rows.resize(kRowsShown);
    rows.push_back(rest);
  }
  double outside = std::max(0.0, step_seconds * static_cast<double>(steps) - all.seconds);
  for (const auto& [phase, seconds] : OutsideOfKernels(profile)) {
    rows.push_back(
        {.name = Concat("outside of kernels: ", phase), .seconds = seconds, .has_limit = false});
    outside = std::max(0.0, outside - seconds);
  }
  rows.push_back({.name = "outside of kernels", .seconds = outside, .has_limit = false});
  std::vector<std::string> lines = {
      Concat("where the time of a step goes (", steps, steps == 1 ? " step; " : " steps; ",
             limits.measured, "):"),
      absl::StrFormat("%9s %13s %13s %7s %16s  %7s  %s", "of step", "time", "above limit", "calls",
                      "rate", "of limit", "kernel")};
  for (Row& row : rows) {
    const auto n = static_cast<double>(steps);
    row.seconds /= n;
    row.least /= n;
    row.flops /= n;
    row.bytes /= n;
    row.calls /= steps;
    lines.push_back(Line(row, step_seconds));
  }
  lines.push_back(absl::StrFormat(
      "step %.1f ms, %.1f %% of %s", 1e3 * step_seconds,
      100 * all.flops / static_cast<double>(steps) / step_seconds / limits.flops, limits.peak));
  return lines;
}

}  // namespace tessera::train
