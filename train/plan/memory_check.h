// SPDX-License-Identifier: Apache-2.0
// What a run that is about to start takes, beside what there is.
//
//   PrepareRun(config, mesh, device, [&](const OpenedRun& run) -> Status {
//     TESSERA_ASSIGN_OR_RETURN(const std::string line, CheckMemory(run, {.ranks = 4, ...}));
//     return Say(line);                     // "a rank takes 1.31 GiB at its peak (step)"
//   });
#ifndef TESSERA_TRAIN_PLAN_MEMORY_CHECK_H_
#define TESSERA_TRAIN_PLAN_MEMORY_CHECK_H_

#include <string>

#include "base/status.h"
#include "core/device.h"
#include "train/run/run_setup.h"

namespace tessera::train {

struct MemoryThere {
  int ranks = 1;        // of the run
  int local_ranks = 1;  // of this machine, which share its memory
  Device device;        // this rank's
  std::string scratch;  // a directory for what is made of data when other layouts are planned
};

// The peak of the run's plan (train/plan/plan.h) in a line. Fails where the device's free memory
// does not hold it, and names the nearest layout that it holds (train/plan/fit.h), if there is one.
StatusOr<std::string> CheckMemory(const OpenedRun& run, const MemoryThere& there);

// "1.31 GiB", "420 MiB".
std::string BytesText(double bytes);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_PLAN_MEMORY_CHECK_H_
