// SPDX-License-Identifier: Apache-2.0
// What `tessera launch` starts: hosts, ranks, and mpirun's arguments.
//
//   TESSERA_ASSIGN_OR_RETURN(LaunchPlan plan, PlanLaunch(flags));
//   TESSERA_RETURN_IF_ERROR(ProbeHosts(plan));
//   execv(plan.arguments[0] ...)
#ifndef TESSERA_TOOLS_LAUNCH_PLAN_H_
#define TESSERA_TOOLS_LAUNCH_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera::tools {

struct LaunchHost {
  std::string name;
  int slots = 1;
  std::string where;           // "hosts.txt:3", for messages
  std::vector<int> gpus = {};  // that --include or --exclude leaves; empty: all of its slots
};

// Lines `host slots=N`; without `slots` a host has one. `#` begins a comment. InvalidArgument with
// file:line for anything else, a host named twice, and a file without hosts.
StatusOr<std::vector<LaunchHost>> ParseHostFile(const std::string& file, std::string_view text);

struct LaunchFlags {
  std::string hostfile;
  int64_t num_nodes = 0;    // 0: all of the host file, or this machine
  int64_t num_gpus = 0;     // ranks of each node; 0: its slots, or this machine's GPUs, at least 1
  int64_t ranks = 0;        // of all nodes together, which share them evenly; 0: `num_gpus` of each
  std::string accelerate;   // Accelerate's configuration, a path
  std::string gpu_ids;      // CUDA_VISIBLE_DEVICES of the ranks; "": as it is here
  std::string include;      // DeepSpeed's `host1@host2:0,2`: these hosts, or GPUs of them; "": all
  std::string exclude;      // likewise: all but these
  int64_t node_rank = -1;   // which node this is, where each node is started by hand; -1: it is not
  bool standalone = false;  // one node, whatever else is said
  std::string master_ip;
  int64_t master_port = 0;
  // An elastic run (tools/elastic/coordinator.h); nullopt and 0: it is not one.
  std::optional<int64_t> max_restarts;
  int64_t min_ranks = 0;              // 0: all
  double heartbeat_timeout = 10;      // seconds
  int64_t memory_save_interval = 10;  // steps
  std::string agent;                  // of this coordinator, this process is the agent of a host
  std::string agent_host;
  bool is_elastic() const { return max_restarts.has_value() || min_ranks > 0; }
  bool not_call_launch = false;
  bool dry_run = false;
  std::vector<std::string> command;  // what every rank runs: `train gpt2 ...`
};

// The ranks of this node, where each node is started by hand: they find the others by the
// environment, as torchrun's do.
struct NodePlan {
  int64_t first_rank = 0;
  int64_t ranks = 1;        // of this node
  int64_t world_size = 1;   // of all
  std::string master_addr;  // of node 0
  int64_t master_port = 0;
};

struct LaunchPlan {
  std::vector<LaunchHost> hosts;  // that are started on; empty: this machine, without a name
  int64_t ranks = 1;
  int64_t ranks_of_each = 0;  // host; 0: its slots
  int64_t ranks_of(const LaunchHost& host) const {
    return ranks_of_each > 0 ? ranks_of_each : host.slots;
  }
  std::vector<std::string> arguments;  // mpirun and what follows; or what each rank of `node` runs
  std::optional<NodePlan> node;
};

// `program` is this executable, `cores` this machine's, `is_root` whether the user is root.
struct Machine {
  std::string program;
  int cores = 1;
  int gpus = 0;
  bool is_root = false;
  std::string ssh;  // "" for mpirun's own choice
  // NAME=VALUE, for the ranks of every host.
  std::vector<std::string> environment = {};
};

// The GPUs that CUDA shows to a program: of `all`, those that CUDA_VISIBLE_DEVICES lists (nullptr:
// it is not set) up to the first that is not there.
int VisibleGpus(int all, const char* visible);

// Lines NAME=VALUE of DeepSpeed's `.deepspeed_env`; `#` begins a comment line. InvalidArgument with
// file:line for anything else.
StatusOr<std::vector<std::string>> ParseEnvironmentFile(const std::string& file,
                                                        std::string_view text);
StatusOr<LaunchPlan> PlanLaunch(const LaunchFlags& flags, const Machine& machine);

// NAME=VALUE of the rank number `local` of a node.
std::vector<std::string> EnvironmentOf(const NodePlan& node, int64_t local);

// Whether a name of the host file is this machine's.
bool IsThisMachine(const std::string& name);

// Tries all hosts but this one at the same time; an error names those that cannot be reached.
Status ProbeHosts(const LaunchPlan& plan, const std::string& ssh);

// The command as a shell would take it.
std::string ShellLine(const std::vector<std::string>& arguments);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_LAUNCH_PLAN_H_
