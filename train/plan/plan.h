// SPDX-License-Identifier: Apache-2.0
// What a run will take, before it is started: memory, disk and communication of every rank.
//
//   TESSERA_ASSIGN_OR_RETURN(const Plan plan, MakePlan(config, {.ranks = 64, .cache = "tmp"}));
//   plan.ranks[3].peak_bytes;                   // of rank 3's device
//   plan.ranks[3].communication.at("tp").sent;  // in one step
//   plan.ranks[3].links.at(2);                  // of that, to rank 2
//
// A plan is a rehearsal: PrepareRun's model, the trainer's engine, two of its steps, an evaluation
// and saving run on `meta`, a rank at a time (Trainer::Rehearse, dist/dry_run/dry_run.h). The first
// step has fewer micro-batches than the second where these are many. So a plan counts what the
// run's own code asks for, and no weights are allocated. On the CPU the peak is the one that the
// run reports (`peak_bytes` of metrics.jsonl), within 0.1 %.
//
// Data. Where the files of `config.data` are there, they are opened as the run opens them, and the
// steps with the largest batches are rehearsed. Where they are not, as many tokens as a step takes
// stand for them, which the tasks over running text can read.
//
// What a plan takes for granted: each expert gets as many tokens as any other; what the metrics of
// an evaluation compute, and texts that it writes, are left out; GPU libraries' own memory
// (contexts, cuBLAS, NCCL) is not the allocator's and is left out.
#ifndef TESSERA_TRAIN_PLAN_PLAN_H_
#define TESSERA_TRAIN_PLAN_PLAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "dist/comm/counting_communicator.h"
#include "nlohmann/json_fwd.hpp"
#include "train/config/run_config.h"
#include "train/run/run_setup.h"

namespace tessera::train {

// Where a rank stands in each axis of the mesh.
struct RankAxes {
  int rank = 0;
  int dp = 0;
  int pp = 0;
  int tp = 0;
  int cp = 0;
  int ep = 0;
};

// One rank. Bytes are as allocators count them, rounded up block by block. The first group is of
// the device that computes: peak = parameters + gradients + states + data + activations + buckets +
// workspaces wherever the step has the peak. Buckets and workspaces are those of that moment
// (core/memory_use.h).
struct RankPlan {
  RankAxes axes;
  int64_t peak_bytes = 0;
  int64_t parameters_bytes = 0;
  int64_t gradients_bytes = 0;    // as far as whole gradients are kept
  int64_t states_bytes = 0;       // of the optimizer, float32 weights among them
  int64_t data_bytes = 0;         // batches; on a GPU they are the host's
  int64_t activations_bytes = 0;  // what else a step needs at most
  int64_t buckets_bytes = 0;      // gradients on their way, gathered parameters
  int64_t workspaces_bytes = 0;   // scratch of kernels
  // The peak of each part of the run: "load", "start", "step", "evaluation", "save".
  std::map<std::string, int64_t> peaks = {};

  // Of the host, for a GPU with its batches: what is off-loaded, and copies of what is saved.
  int64_t host_bytes = 0;
  int64_t checkpoint_bytes = 0;  // tensors that this rank writes
  // Of a step, by group of the mesh: "tp", "dp", ... and "world".
  std::map<std::string, dist::CommTotals> communication = {};
  // Of a step, bytes by the rank that gets them (train/plan/links.h); their sum is that of
  // `communication`'s bytes sent.
  std::map<int, int64_t> links = {};

  // Bytes that `links` has to ranks of other nodes, of so many devices each.
  int64_t SentBetweenNodes(int64_t devices_per_node) const;
};

struct PlanOptions {
  int ranks = 1;
  // Directory for what is made of the data; the caller removes it.
  std::string cache = {};
  // Data ranks and tensor-parallel ranks that are rehearsed, of each stage: all of them up to this
  // many ranks; beyond, the first and the last of each axis (and the first of each expert-parallel
  // rank) stand for the others.
  int rehearse_all = 32;
};

struct Plan {
  RunConfig config;                 // with what was left to the model and the data filled in
  std::string task;                 // its name
  bool data_assumed = false;        // the files are not there
  std::vector<RankPlan> ranks;      // every rank of the run
  int64_t parameter_count = 0;      // of the whole model
  int64_t checkpoint_bytes = 0;     // tensors of all ranks
  int64_t tokens_per_step = 0;      // of all ranks, padding included
  double flops_per_token = 0;       // forward and backward, without recomputation
  double flops_run_per_token = 0;   // with recomputation
  std::vector<double> block_costs;  // multiply-adds for a token
  int64_t total_steps = 0;
  std::optional<double> steps_per_epoch;  // nullopt: not known

  int64_t peak_bytes() const;  // the greatest of a rank
  int64_t host_bytes() const;
  nlohmann::ordered_json ToJson() const;
  // For people. Of nodes of so many devices, bytes sent within and between them.
  std::string Table(std::optional<int64_t> devices_per_node = std::nullopt) const;
};

// Of a run that is open, in whatever process. Its threads are left as they are.
StatusOr<Plan> PlanOf(const OpenedRun& run, const PlanOptions& options);
// `config` is valid for so many ranks, or the failure says why not; what cannot be planned, too.
StatusOr<Plan> MakePlan(const RunConfig& config, const PlanOptions& options);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_PLAN_PLAN_H_
