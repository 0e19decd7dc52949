// SPDX-License-Identifier: Apache-2.0
#include "train/plan/machine.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

#include "base/json_text.h"
#include "base/options.h"
#include "core/dtype.h"
#include "dist/pipeline/partition.h"
#include "dist/pipeline/simulator.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

// The distance in ranks between neighbours of a group, and how many there are.
struct Extent {
  int64_t stride = 1;
  int64_t size = 1;
};

Extent ExtentOf(const std::string& group, const RunConfig& config, int64_t ranks) {
  const int64_t dp = ranks / (config.tp * config.pp);
  if (group == "tp") return {1, config.tp};
  if (group == "pp") return {config.tp * dp, config.pp};
  if (group == "ep") return {config.tp, config.ep};
  if (group == "edp") return {config.tp * config.ep, dp / config.ep};
  // Neighbours in the order of dp ranks; with experts these are not neighbours in the world.
  if (group == "cp") return {config.tp * config.ep, config.cp};
  if (group == "dp") return {config.tp, dp};
  return {1, ranks};
}

// The slowest link between the ranks of a rank's group.
double Bandwidth(const std::string& group, const Plan& plan, int64_t rank, const Machine& machine) {
  const auto ranks = static_cast<int64_t>(plan.ranks.size());
  const Extent extent = ExtentOf(group, plan.config, ranks);
  const int64_t first = rank - rank / extent.stride % extent.size * extent.stride;
  const int64_t last = first + (extent.size - 1) * extent.stride;
  const bool in_node = first >= 0 && first / machine.devices_per_node ==
                                         std::min(last, ranks - 1) / machine.devices_per_node;
  return in_node ? machine.link_bandwidth : machine.network_bandwidth;
}

// Seconds that a rank's bytes take, by group.
std::map<std::string, double> CommunicationOf(const Plan& plan, const RankPlan& rank,
                                              const Machine& machine) {
  std::map<std::string, double> seconds;
  for (const auto& [group, totals] : rank.communication) {
    if (totals.sent == 0) continue;
    seconds[group] =
        static_cast<double>(totals.sent) / Bandwidth(group, plan, rank.axes.rank, machine);
  }
  return seconds;
}

double At(const std::map<std::string, double>& seconds, const char* group) {
  const auto found = seconds.find(group);
  return found == seconds.end() ? 0 : found->second;
}

StatusOr<double> RateOf(const RunConfig& config, const Machine& machine) {
  const std::string dtype = config.autocast.empty() ? config.dtype : config.autocast;
  const double rate = dtype == "bfloat16"  ? machine.bfloat16_flops
                      : dtype == "float16" ? machine.float16_flops
                                           : machine.float32_flops;
  if (rate > 0) return rate;
  return InvalidArgument("the machine has no rate of ", dtype, " (", dtype, "_flops)");
}

Status CheckRates(const Plan& plan, const Machine& machine) {
  const auto ranks = static_cast<int64_t>(plan.ranks.size());
  if (machine.memory_bandwidth <= 0) return InvalidArgument("memory_bandwidth is missing");
  if (std::min(ranks, machine.devices_per_node) > 1 && machine.link_bandwidth <= 0) {
    return InvalidArgument("link_bandwidth is missing");
  }
  if (ranks > machine.devices_per_node && machine.network_bandwidth <= 0) {
    return InvalidArgument("network_bandwidth is missing: ", ranks, " ranks need more than one ",
                           "node of ", machine.devices_per_node);
  }
  if (plan.config.cpu_offload && machine.host_bandwidth <= 0) {
    return InvalidArgument("host_bandwidth is missing, and the optimizer is off-loaded");
  }
  return OkStatus();
}

// Of all stages, by the run's schedule; a stage alone is a pipeline of one.
StatusOr<dist::Simulation> Pipeline(const Plan& plan, double work, double blocking,
                                    double transfer) {
  const RunConfig& config = plan.config;
  const auto micro_batches = static_cast<int>(config.accumulation_steps());
  dist::PipelineShape shape = {.stages = 1, .chunks_per_rank = 1, .micro_batches = micro_batches};
  dist::ScheduleKind kind = dist::ScheduleKind::kOneForwardOneBackward;
  if (config.pp > 1) {
    shape = config.pipeline_shape();
    TESSERA_ASSIGN_OR_RETURN(kind, config.pipeline_schedule());
  }
  const int chunks = shape.stages * shape.chunks_per_rank;
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int> cuts, dist::CutBlocks(plan.block_costs, chunks));
  double all = 0;
  for (const double cost : plan.block_costs) all += cost;
  dist::ScheduleCosts costs = {.transfer = transfer};
  const double again = plan.flops_run_per_token / plan.flops_per_token;
  for (int c = 0; c < chunks; ++c) {
    double share = 0;
    for (int b = cuts[static_cast<size_t>(c)]; b < cuts[static_cast<size_t>(c) + 1]; ++b) {
      share += plan.block_costs[static_cast<size_t>(b)] / all;
    }
    // `work` is a stage's mean for a micro-batch.
    const double pass = work * share * shape.stages / (3 * again);
    const double waits = blocking / shape.chunks_per_rank;
    costs.forward.push_back(pass + waits / 2);
    costs.input_grad.push_back(pass + (again - 1) * 3 * pass + waits / 2);
    costs.weight_grad.push_back(pass);
  }
  TESSERA_ASSIGN_OR_RETURN(const dist::Schedule schedule, dist::MakeSchedule(kind, shape));
  return dist::Simulate(schedule, costs);
}

double UpdateSeconds(const Plan& plan, const RankPlan& rank, const Machine& machine) {
  const double bytes = static_cast<double>(rank.parameters_bytes + rank.gradients_bytes);
  if (!plan.config.cpu_offload) {
    return (bytes + 2 * static_cast<double>(rank.states_bytes)) / machine.memory_bandwidth;
  }
  return bytes / machine.host_bandwidth;
}

}  // namespace

const OptionTable& Machine::Table() {
  using M = Machine;
  static const auto* table = new OptionTable(
      OptionTable::Of<M>("Machine")
          .Add("float32_flops", &M::float32_flops, "FLOPs a second in float32", {.least = 0})
          .Add("bfloat16_flops", &M::bfloat16_flops, "in bfloat16", {.least = 0})
          .Add("float16_flops", &M::float16_flops, "in float16", {.least = 0})
          .Add("memory_bandwidth", &M::memory_bandwidth, "bytes a second of a device's memory",
               {.least = 0})
          .Add("link_bandwidth", &M::link_bandwidth,
               "bytes a second to another device of the node, one way", {.least = 0})
          .Add("network_bandwidth", &M::network_bandwidth,
               "bytes a second to a device of another node, one way", {.least = 0})
          .Add("host_bandwidth", &M::host_bandwidth, "bytes a second to the host's memory",
               {.least = 0})
          .Add("devices_per_node", &M::devices_per_node, "devices of a node", {.least = 1})
          .Add("device_memory", &M::device_memory, "bytes of a device", {.least = 0}));
  return *table;
}

StatusOr<Machine> ReadMachine(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json json, ReadJsonFile(path, {.comments = true}));
  return ParseOptions<Machine>(json, path);
}

StatusOr<StepTime> TimeOf(const Plan& plan, const Machine& machine) {
  TESSERA_RETURN_IF_ERROR(CheckRates(plan, machine));
  TESSERA_ASSIGN_OR_RETURN(const double rate, RateOf(plan.config, machine));
  const auto ranks = static_cast<double>(plan.ranks.size());
  const auto micro_batches = static_cast<double>(plan.config.accumulation_steps());
  const auto tokens = static_cast<double>(plan.tokens_per_step);
  StepTime time;
  time.compute = plan.flops_run_per_token * tokens / ranks / rate;
  double blocking = 0, beside = 0, transfer = 0;
  for (const RankPlan& rank : plan.ranks) {
    const auto seconds = CommunicationOf(plan, rank, machine);
    blocking = std::max(blocking, At(seconds, "tp") + At(seconds, "cp") + At(seconds, "ep"));
    beside = std::max(beside, At(seconds, "dp") + At(seconds, "edp") + At(seconds, "world") +
                                  At(seconds, "model"));
    transfer = std::max(transfer, At(seconds, "pp") / (2 * micro_batches));
    time.update = std::max(time.update, UpdateSeconds(plan, rank, machine));
  }
  TESSERA_ASSIGN_OR_RETURN(
      const dist::Simulation pipeline,
      Pipeline(plan, time.compute / micro_batches, blocking / micro_batches, transfer));
  double hides = 0;
  if (plan.config.overlap_comm) {
    hides = plan.config.zero == 3 ? time.compute : time.compute * 2 / 3 / micro_batches;
  }
  const double exposed_data = std::max(0.0, beside - hides);
  time.bubble = pipeline.bubble;
  time.exposed = blocking + exposed_data;
  time.seconds = pipeline.makespan + exposed_data + time.update;
  time.tokens_per_second = tokens / time.seconds;
  time.model_flops_per_second = plan.flops_per_token * time.tokens_per_second / ranks;
  return time;
}

nlohmann::ordered_json StepTime::ToJson() const {
  return {{"seconds", seconds},
          {"compute_seconds", compute},
          {"pipeline_bubble", bubble},
          {"exposed_communication_seconds", exposed},
          {"update_seconds", update},
          {"tokens_per_second", tokens_per_second},
          {"model_flops_per_second", model_flops_per_second}};
}

std::string StepTime::Text() const {
  char text[256];
  std::snprintf(text, sizeof(text),
                "%.4g s a step: compute %.4g s, pipeline bubble %.1f %%, exposed communication "
                "%.4g s, update %.4g s; %.4g tokens/s, %.4g FLOP/s a rank\n",
                seconds, compute, 100 * bubble, exposed, update, tokens_per_second,
                model_flops_per_second);
  return text;
}

}  // namespace tessera::train
