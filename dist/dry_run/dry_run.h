// SPDX-License-Identifier: Apache-2.0
// What the ranks of a layout need, found on meta: without data, and without ranks.
//
//   // Of 256 ranks, those with dp rank 5 and tp rank 2, all stages:
//   DryRun({.sizes = {.tp = 8, .pp = 4}, .world_size = 256, .dp_rank = 5, .tp_rank = 2},
//          [&](const Mesh& mesh, RankMeter& meter) {
//            auto model = models::BuildModel(config, {.device = Device::Meta(),
//                                                     .tensor_parallel = mesh.tp()});
//            train::Engine engine(**model, mesh, options);
//            engine.Start();
//            engine.Step(step);                             // losses and norm are NaN
//            meter.peak_bytes(Device::Meta());              // of this rank
//            meter.totals(CommKind::kAllReduce).sent;       // likewise
//          });
//
// It is the code of a real run. Groups count what they are given, and move nothing. The other ranks
// of dp, ep and tp are taken to do as this one does (LoneRankCommunicator). The stages of a
// pipeline do differ, and tell each other what they hold and which shapes their messages have; so
// they run together, as threads that take turns (dist/dry_run/rank_meter.h).
#ifndef TESSERA_DIST_DRY_RUN_DRY_RUN_H_
#define TESSERA_DIST_DRY_RUN_DRY_RUN_H_

#include <functional>

#include "core/device.h"
#include "dist/dry_run/rank_meter.h"
#include "dist/mesh/mesh.h"

namespace tessera::dist {

// The ranks of a layout with these places in dp and tp: one for each stage of the pipeline.
struct DryRunRanks {
  MeshSizes sizes = {};
  int world_size = 1;
  int dp_rank = 0;
  int tp_rank = 0;
  // What meta imitates. Memory is measured of that, of the host's on meta, and of the CPU, where
  // the little lies that steers a program.
  Device device = Device::Meta();
};

// Runs `body` for each of them. Throws Error for a layout that CheckMesh refuses.
void DryRun(const DryRunRanks& ranks,
            const std::function<void(const Mesh& mesh, RankMeter& meter)>& body);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_DRY_RUN_DRY_RUN_H_
