// SPDX-License-Identifier: Apache-2.0
// `profile_summary`: where the time of a step goes, and how far each kind of kernel is from what
// the machine could do.
//
//   const StepLimits limits = MeasureLimits(device);
//   for (const std::string& line : StepSummary(profile, steps, seconds, limits)) ...
//
// A kernel's limit is the longer of two times: its products at the machine's rate for numbers of
// their kind, and its bytes, each operand once, at the bandwidth of the nearest memory that could
// hold them. The rows stand in the order of the time that a step spends above its limits, which is
// what better kernels could gain. Behind them stands the time that no kernel takes, by phase: waits
// for data and for other ranks, a checkpoint, the host's own work.
#ifndef TESSERA_TRAIN_REPORT_STEP_SUMMARY_H_
#define TESSERA_TRAIN_REPORT_STEP_SUMMARY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/profiler.h"

namespace tessera::train {

struct StepLimits {
  std::string measured;  // "2 threads: 117.0 GFLOP/s of FMA (float32), memory 21.5 GB/s"
  std::string peak;      // what `flops` is called: "the FMA peak"
  double flops = 0;      // a second
  std::function<double(const KernelWork&)> least_seconds;
};

// Of the processor as it is now, or of a GPU: the rate of a large product of each dtype and of a
// large copy. Takes about a second.
StepLimits MeasureLimits(const Device& device);

// The table, whose last line is "step X ms, Y % of the FMA peak". `steps` steps took `seconds` in
// all; evaluations among them (spans of the category "evaluation") are left out.
std::vector<std::string> StepSummary(Profile profile, int64_t steps, double seconds,
                                     const StepLimits& limits);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_REPORT_STEP_SUMMARY_H_
