// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other before each optimizer step.
//
//   const StepReport all = ExchangeReports(mine, mesh);
//   if (all.stop != 0) ...                              // every rank leaves the loop at this step
//   loss = sum / all.targets;
#ifndef TESSERA_TRAIN_REPORT_STEP_REPORT_H_
#define TESSERA_TRAIN_REPORT_STEP_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dist/mesh/mesh.h"

namespace tessera::train {

struct StepReport {
  double targets = 0;  // of this step's batches, each with its class's weight
  int64_t tokens = 0;
  int64_t stop = 0;      // why the run should end: a signal's number or one of the reasons below
  bool failed = false;   // the batches could not be made
  bool written = false;  // this rank's part of the checkpoint under way is on disk
};

inline constexpr int64_t kStopTimeLimit = 1000;
inline constexpr int64_t kStopCallback = 1001;
// "SIGTERM", "the time limit", "a callback"; empty for 0.
std::string StopReason(int64_t stop);

// Targets and tokens summed over the data-parallel ranks, the greatest stop, whether any failed,
// whether all have written. Collective over the mesh's world.
StepReport ExchangeReports(const StepReport& mine, const dist::Mesh& mesh);

// Every data-parallel rank's values one after the other: of each of a step's micro-batches, say, in
// the order of the global micro-batch. Collective over the mesh's dp axis; `mine` has one length on
// all ranks.
std::vector<double> GatherOverData(const std::vector<double>& mine, const dist::Mesh& mesh);
// The model's own losses by name: `each` micro-batch's of all data-parallel ranks, the mean by
// their targets. Collective over those ranks, which have the same names.
std::map<std::string, double> MeanAuxiliaries(
    const std::vector<std::map<std::string, double>>& each, const std::vector<double>& targets,
    const dist::Mesh& mesh);

// The greatest of all ranks' values, place by place. Collective over the mesh's world.
std::vector<int64_t> GreatestOf(const std::vector<int64_t>& mine, const dist::Mesh& mesh);
int64_t GreatestOf(int64_t mine, const dist::Mesh& mesh);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_REPORT_STEP_REPORT_H_
