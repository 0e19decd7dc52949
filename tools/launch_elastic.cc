// SPDX-License-Identifier: Apache-2.0
#include "tools/launch_elastic.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "tools/command_line.h"
#include "tools/elastic/agent.h"
#include "tools/elastic/coordinator.h"
#include "tools/run_flags.h"
#include "train/run/elastic_run.h"

namespace tessera::tools {
namespace {

constexpr int64_t kUsualPort = 29400;

// The run that a command line of `train` describes, on so many ranks.
StatusOr<train::ResolvedRun> ReadTrainCommand(const std::vector<std::string>& words, int ranks) {
  if (words.empty() || words[0] != "train") {
    return InvalidArgument("--max-restarts and --min-ranks are for `train`, not for `",
                           words.empty() ? "" : words[0], "`");
  }
  CLI::App app;
  CLI::App* const command = app.add_subcommand("train");
  RunFlags flags;
  flags.Add(command);
  WrittenNames names;
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> normal,
                           NormaliseArguments(app, words, GoesOnList, &names));
  try {
    std::reverse(normal.begin(), normal.end());
    app.parse(std::move(normal));
  } catch (const CLI::ParseError& error) {
    return names.In(InvalidArgument(error.what()));
  }
  TESSERA_ASSIGN_OR_RETURN(train::ResolvedRun run, flags.Resolve(*command, ranks, &names));
  TESSERA_RETURN_IF_ERROR(names.In(run.status()));
  TESSERA_RETURN_IF_ERROR(names.In(run.config.Validate()));
  TESSERA_RETURN_IF_ERROR(names.In(run.config.ValidateFor(ranks)));
  if (run.config.out.empty()) return InvalidArgument("--out is missing");
  return run;
}

// The agent's command line, as words of this machine.
std::vector<std::string> AgentCommand(const LaunchFlags& flags, const Machine& machine,
                                      const std::string& host, int64_t slots) {
  std::vector<std::string> words = {machine.program, "launch", "--agent",    kCoordinatorUrl,
                                    "--agent-host",  host,     "--num-gpus", Concat(slots)};
  if (!flags.gpu_ids.empty()) words.insert(words.end(), {"--gpu-ids", flags.gpu_ids});
  words.emplace_back("--");
  words.insert(words.end(), flags.command.begin(), flags.command.end());
  return words;
}

// The same through ssh, in the same folder and with what mpirun would forward.
std::vector<std::string> ThroughSsh(const std::vector<std::string>& command, const Machine& machine,
                                    const std::string& host) {
  std::vector<std::string> words = {"env"};
  words.insert(words.end(), machine.environment.begin(), machine.environment.end());
  words.insert(words.end(), command.begin(), command.end());
  const std::string folder = std::filesystem::current_path().string();
  return {machine.ssh.empty() ? "ssh" : machine.ssh, "-o", "BatchMode=yes", host,
          Concat("cd ", ShellLine({folder}), " && exec ", ShellLine(words))};
}

// An agent for every host, started from here.
std::vector<AgentStart> AgentsOf(const LaunchPlan& plan, const LaunchFlags& flags,
                                 const Machine& machine) {
  if (plan.node) {  // of this node; the others start theirs
    const std::string host = Concat("node-", flags.node_rank);
    return {{.host = host,
             .command = AgentCommand(flags, machine, host, plan.node->ranks),
             .toward = plan.node->master_addr}};
  }
  if (plan.hosts.empty()) {
    return {{.host = "localhost",
             .command = AgentCommand(flags, machine, "localhost", plan.ranks),
             .toward = ""}};
  }
  std::string other;  // a host that is not this machine
  for (const LaunchHost& host : plan.hosts) {
    if (!IsThisMachine(host.name)) other = host.name;
  }
  std::vector<AgentStart> agents;
  for (const LaunchHost& host : plan.hosts) {
    const int64_t slots = plan.ranks_of(host);
    LaunchFlags own = flags;
    if (!host.gpus.empty()) own.gpu_ids = absl::StrJoin(host.gpus, ",");
    std::vector<std::string> command = AgentCommand(own, machine, host.name, slots);
    const bool is_here = IsThisMachine(host.name);
    if (!is_here) command = ThroughSsh(command, machine, host.name);
    agents.push_back({host.name, std::move(command), is_here ? other : host.name});
  }
  return agents;
}

}  // namespace

void BecomeAgent(const LaunchFlags& flags, const Machine& machine) {
  std::vector<std::string> command = {machine.program};
  command.insert(command.end(), flags.command.begin(), flags.command.end());
  std::exit(RunAgent({.coordinator = flags.agent,
                      .host = flags.agent_host,
                      .slots = flags.num_gpus,
                      .command = std::move(command),
                      .gpu_ids = flags.gpu_ids}));
}

Status RunElastic(const LaunchPlan& plan, const LaunchFlags& flags, const Machine& machine) {
  const int64_t min_ranks = flags.min_ranks > 0 ? flags.min_ranks : plan.ranks;
  if (min_ranks > plan.ranks) {
    return InvalidArgument("--min-ranks ", min_ranks, " is more than the ", plan.ranks, " ranks");
  }
  const int ranks = static_cast<int>(plan.ranks);
  TESSERA_ASSIGN_OR_RETURN(const train::ResolvedRun run, ReadTrainCommand(flags.command, ranks));
  const int64_t port = flags.master_port > 0 ? flags.master_port : kUsualPort;
  if (plan.node && flags.node_rank > 0) {
    LaunchFlags agent = flags;
    agent.agent = Concat("http://", plan.node->master_addr, ":", port);
    agent.agent_host = Concat("node-", flags.node_rank);
    agent.num_gpus = plan.node->ranks;
    BecomeAgent(agent, machine);
  }
  CoordinatorOptions options = {.members = {.ranks = plan.ranks,
                                            .min_ranks = min_ranks,
                                            .max_restarts = flags.max_restarts.value_or(0),
                                            .interval = flags.memory_save_interval,
                                            .silence = flags.heartbeat_timeout},
                                .agents = AgentsOf(plan, flags, machine),
                                .address = flags.master_ip,
                                .port = static_cast<int>(plan.node ? port : flags.master_port),
                                .folder = run.config.out,
                                .begins_afresh = run.config.overwrite && !run.resume};
  options.members.most_ranks = [config = run.config, ranks](int64_t there) {
    return train::MostRanks(config, ranks, static_cast<int>(there));
  };
  for (const AgentStart& agent : options.agents) options.members.hosts.push_back(agent.host);
  if (plan.node) {
    for (int64_t node = 1; node < flags.num_nodes; ++node) {
      options.members.hosts.push_back(Concat("node-", node));
    }
  }
  if (flags.dry_run) {
    std::string lines;
    for (const AgentStart& agent : options.agents) lines += ShellLine(agent.command) + "\n";
    return WriteOut(lines);
  }
  TESSERA_ASSIGN_OR_RETURN(const int code, RunCoordinator(options));
  std::exit(code);
}

}  // namespace tessera::tools
