// SPDX-License-Identifier: Apache-2.0
// Runs a schedule in virtual time: whether it ends, how long it takes, what it holds.
//
//   TESSERA_ASSIGN_OR_RETURN(Simulation s, Simulate(schedule));
//   s.bubble;        // 0.27 for 1f1b with 4 stages and 8 micro-batches
//
//   ScheduleCosts costs = {.forward = {10, 12}, .input_grad = {11, 12}, .weight_grad = {9, 10},
//                          .transfer = 0.1};                        // of each chunk, any unit
//   TESSERA_ASSIGN_OR_RETURN(s, Simulate(schedule, costs));
//
// Ranks take their actions in order. A send takes no time of its rank and the message arrives
// `transfer` later; a receive waits for it. Every schedule is simulated before it is executed (an
// error is much cheaper here than ranks that wait for each other), and the tests compare what the
// executor counts and measures with this.
#ifndef TESSERA_DIST_PIPELINE_SIMULATOR_H_
#define TESSERA_DIST_PIPELINE_SIMULATOR_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "dist/pipeline/schedule.h"

namespace tessera::dist {

// Times per chunk, in any unit. An empty list stands for 1 each.
struct ScheduleCosts {
  std::vector<double> forward = {};
  std::vector<double> input_grad = {};
  std::vector<double> weight_grad = {};
  double transfer = 0;
};

struct Simulation {
  double makespan = 0;
  // Of each rank: time spent computing, and when its first action begins and its last one ends.
  std::vector<double> busy = {};
  std::vector<double> begin = {};
  std::vector<double> end = {};
  // The share of all ranks' time that they are idle: 1 - sum(busy) / (ranks * makespan).
  double bubble = 0;
  // The same between each rank's own first and last action, which is what is left when steps follow
  // one another without waiting: 1 - sum(busy) / sum(end - begin).
  double inner_bubble = 0;
  // The greatest number of (micro-batch, chunk) pairs whose activations a rank holds at once.
  std::vector<int> peak_live = {};
};

// InvalidArgument, in one line with the rank and the action, for a schedule that
//   - has an action of a chunk or micro-batch that does not exist, or is another rank's,
//   - does something twice or not at all, or splits a backward and does it whole as well,
//   - uses what the rank does not have yet, adds up gradients out of order, or receives messages
//     between two chunks in another order than they were sent,
//   - makes ranks wait for each other (each of them is named with what it waits for).
// Schedules without any gradients (evaluation) pass likewise.
StatusOr<Simulation> Simulate(const Schedule& schedule, const ScheduleCosts& costs = {});

}  // namespace tessera::dist

#endif  // TESSERA_DIST_PIPELINE_SIMULATOR_H_
