// SPDX-License-Identifier: Apache-2.0
// How long a planned step takes on a machine whose rates are stated.
//
//   TESSERA_ASSIGN_OR_RETURN(const Machine machine, ReadMachine("cluster.json"));
//   TESSERA_ASSIGN_OR_RETURN(const StepTime time, TimeOf(plan, machine));
//   time.seconds, time.bubble, time.exposed;
//
// The file is a JSON object with the keys of Machine. Rates are what the machine reaches, not
// what its data sheet says; nothing here is fitted.
//
// With F FLOPs of the plan for a token (recomputation included), T tokens a step, N ranks:
//   work           F T / N at the rate of the products' dtype, cut over stages as the run cuts
//                  blocks, over chunks of the pipeline and its micro-batches; a third of it is the
//                  forward pass, and recomputation goes to the gradients of inputs
//   communication  bytes that a rank sends in a group, at the rate of the slowest link between the
//                  group's ranks (dist/mesh/mesh.h has their order; node n has ranks
//                  [n, n + 1) * devices_per_node)
//   exposed        tp, cp and ep wait for their bytes: all of them. What dp, edp and world send is
//                  hidden behind the backward pass of the last micro-batch (with ZeRO 3 behind all
//                  passes) as far as that lasts, where overlap_comm is on
//   pipeline       dist::Simulate of the run's schedule with these times of a chunk; a transfer is
//                  the mean message of pp at the rate of its link. bubble = idle / (N makespan)
//   update         parameters written once, gradients read once, states read and written, at the
//                  memory's rate, or at the host's link where the optimizer is off-loaded
//   seconds        makespan + exposed dp, edp and world + update
// The terms are those of Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on
// GPU Clusters Using Megatron-LM" (FLOPs, section 5.1: 72 B s l h^2 (1 + s/6h + V/12lh) of a step
// without recomputation, 96 B s l h^2 (1 + s/6h + V/16lh) with it), and for rings of Patarasuk and
// Yuan 2009.
#ifndef TESSERA_TRAIN_PLAN_MACHINE_H_
#define TESSERA_TRAIN_PLAN_MACHINE_H_

#include <cstdint>
#include <string>

#include "base/options_fwd.h"
#include "base/status.h"
#include "nlohmann/json_fwd.hpp"
#include "train/plan/plan.h"

namespace tessera::train {

// Of each device. FLOPs and bytes in a second.
struct Machine {
  double float32_flops = 0;
  double bfloat16_flops = 0;
  double float16_flops = 0;
  double memory_bandwidth = 0;
  double link_bandwidth = 0;     // to another device of the node, one way
  double network_bandwidth = 0;  // to a device of another node, one way
  double host_bandwidth = 0;     // to the host's memory; 0: nothing is off-loaded
  int64_t devices_per_node = 1;
  int64_t device_memory = 0;  // bytes; 0: not known

  static const OptionTable& Table();
};

struct StepTime {
  double seconds = 0;
  double compute = 0;  // of the rank that has the most
  double bubble = 0;   // share of all ranks' time in the pipeline
  double exposed = 0;  // seconds of communication that nothing hides, of the rank that has the most
  double update = 0;   // seconds
  double tokens_per_second = 0;       // of all ranks
  double model_flops_per_second = 0;  // of each rank, recomputation left out
  nlohmann::ordered_json ToJson() const;
  std::string Text() const;
};

// Fails for what is no such file, naming the key.
StatusOr<Machine> ReadMachine(const std::string& path);

// Fails where the machine has no rate for something that the plan does.
StatusOr<StepTime> TimeOf(const Plan& plan, const Machine& machine);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_PLAN_MACHINE_H_
