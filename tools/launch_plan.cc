// SPDX-License-Identifier: Apache-2.0
#include "tools/launch_plan.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/file.h"

namespace tessera::tools {
namespace {

constexpr int kMostSlots = 1 << 16;
constexpr int kMostRanks = 1 << 24;
constexpr int kConnectSeconds = 5;
constexpr int kUsualPort = 29500;  // as torchrun and Accelerate have it
constexpr std::chrono::seconds kProbeLimit{15};

std::vector<std::string> Words(const std::string& line) {
  return absl::StrSplit(line.substr(0, line.find('#')), absl::ByAnyChar(" \t\r"),
                        absl::SkipEmpty());
}

bool IsHostName(const std::string& name) {
  return !name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr(".-_:[]@", c) != nullptr;
  });
}

StatusOr<std::vector<LaunchHost>> HostsOf(const LaunchFlags& flags) {
  std::vector<LaunchHost> hosts;
  if (flags.hostfile.empty()) {
    if (flags.num_nodes > 1) {
      return InvalidArgument("--num-nodes ", flags.num_nodes,
                             " needs --hostfile, or --node-rank and --master-ip on each node");
    }
    return hosts;
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.hostfile));
  TESSERA_ASSIGN_OR_RETURN(hosts, ParseHostFile(flags.hostfile, text));
  if (flags.num_nodes > std::ssize(hosts)) {
    return InvalidArgument("--num-nodes ", flags.num_nodes, " is more than the ", hosts.size(),
                           " hosts in ", flags.hostfile);
  }
  if (flags.num_nodes > 0) hosts.resize(static_cast<size_t>(flags.num_nodes));
  return hosts;
}

// A host of DeepSpeed's filters, with its GPUs: "worker-0:0,2".
struct HostFilter {
  std::string host;
  std::vector<int> gpus;  // empty: all
};

StatusOr<std::vector<HostFilter>> ParseFilter(std::string_view flag, const std::string& text) {
  std::vector<HostFilter> filters;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, '@'))) {
    const size_t colon = part.find(':');
    HostFilter filter{part.substr(0, colon), {}};
    bool is_right = IsHostName(filter.host);
    if (colon != std::string::npos) {
      const std::vector<std::string> ids = absl::StrSplit(part.substr(colon + 1), ',');
      for (const std::string& id : ids) {
        int& gpu = filter.gpus.emplace_back();
        is_right = is_right && absl::SimpleAtoi(id, &gpu) && gpu >= 0;
      }
    }
    if (!is_right) {
      return InvalidArgument(flag, " ", text, ": '", part, "' is not HOST or HOST:0,1,...");
    }
    filters.push_back(std::move(filter));
  }
  return filters;
}

std::vector<int> AllGpus(const LaunchHost& host) {
  std::vector<int> all(static_cast<size_t>(host.slots));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// What --include or --exclude leaves of the hosts.
Status FilterHosts(const LaunchFlags& flags, std::vector<LaunchHost>* hosts) {
  const bool includes = !flags.include.empty();
  const std::string_view flag = includes ? "--include" : "--exclude";
  const std::string& text = includes ? flags.include : flags.exclude;
  TESSERA_ASSIGN_OR_RETURN(const std::vector<HostFilter> filters, ParseFilter(flag, text));
  std::map<std::string, std::set<int>> named;
  for (const HostFilter& filter : filters) {
    const auto host = std::find_if(hosts->begin(), hosts->end(),
                                   [&](const LaunchHost& h) { return h.name == filter.host; });
    if (host == hosts->end()) {
      return InvalidArgument(flag, " ", text, ": there is no host '", filter.host, "'",
                             flags.hostfile.empty() ? "; without --hostfile it is localhost"
                                                    : " in " + flags.hostfile);
    }
    for (const int gpu : filter.gpus) {
      if (gpu < host->slots) continue;
      return InvalidArgument(flag, " ", text, ": '", filter.host, "' has ", host->slots,
                             " slots, no slot ", gpu);
    }
    const std::vector<int> gpus = filter.gpus.empty() ? AllGpus(*host) : filter.gpus;
    named[filter.host].insert(gpus.begin(), gpus.end());
  }
  std::vector<LaunchHost> left;
  for (LaunchHost& host : *hosts) {
    const std::set<int>& of_host = named[host.name];
    for (const int gpu : AllGpus(host)) {
      if ((of_host.count(gpu) > 0) == includes) host.gpus.push_back(gpu);
    }
    if (host.gpus.empty()) continue;
    if (std::ssize(host.gpus) == host.slots) {
      host.gpus.clear();
    } else {
      host.slots = static_cast<int>(host.gpus.size());
    }
    left.push_back(std::move(host));
  }
  if (left.empty()) return InvalidArgument(flag, " ", text, " leaves no host");
  *hosts = std::move(left);
  return OkStatus();
}

// Ranks of each host as the flags say; 0: they do not.
StatusOr<int64_t> RanksOfEach(const LaunchFlags& flags, int64_t hosts) {
  if (flags.ranks == 0) return flags.num_gpus;
  const int64_t places = std::max<int64_t>(hosts, 1);
  if (flags.ranks % places != 0) {
    return InvalidArgument("--num-processes ", flags.ranks, " cannot be shared evenly by ", places,
                           " hosts");
  }
  const int64_t each = flags.ranks / places;
  if (flags.num_gpus > 0 && flags.num_gpus != each) {
    return InvalidArgument("--num-processes ", flags.ranks, " on ", places,
                           places == 1 ? " host" : " hosts", " contradicts --num-gpus ",
                           flags.num_gpus);
  }
  return each;
}

// One attempt to reach a host, with what it says on standard error.
struct Probe {
  const LaunchHost* host = nullptr;
  pid_t pid = -1;
  std::FILE* errors = nullptr;
  int status = -1;
};

void StartProbe(const std::string& ssh, Probe* probe) {
  probe->errors = std::tmpfile();
  std::vector<std::string> words = {ssh,
                                    "-o",
                                    "BatchMode=yes",
                                    "-o",
                                    Concat("ConnectTimeout=", kConnectSeconds),
                                    probe->host->name,
                                    "true"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  if (probe->errors != nullptr) {
    posix_spawn_file_actions_adddup2(&actions, fileno(probe->errors), STDERR_FILENO);
  }
  if (posix_spawnp(&probe->pid, ssh.c_str(), &actions, nullptr, arguments.data(), environ) != 0) {
    probe->pid = -1;
  }
  posix_spawn_file_actions_destroy(&actions);
}

// What went wrong, in few words.
std::string Reason(const Probe& probe, const std::string& ssh) {
  if (probe.pid < 0) return Concat(ssh, " could not be started");
  std::array<char, 300> line{};
  if (probe.errors != nullptr) {
    std::rewind(probe.errors);
    if (std::fgets(line.data(), line.size(), probe.errors) == nullptr) line[0] = '\0';
  }
  std::string text = line.data();
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (!text.empty()) return text;
  return WIFSIGNALED(probe.status) ? "no answer" : Concat(ssh, " failed");
}

// Of nodes that are started one by one, this one.
StatusOr<LaunchPlan> PlanNode(const LaunchFlags& flags, const Machine& machine) {
  if (flags.node_rank >= flags.num_nodes) {
    return InvalidArgument("--node-rank ", flags.node_rank, " is not below --num-nodes ",
                           flags.num_nodes);
  }
  if (!flags.hostfile.empty()) {
    return InvalidArgument("--node-rank is for nodes that are started one by one; with --hostfile ",
                           "one start on the first host is enough");
  }
  if (flags.master_ip.empty()) {
    return InvalidArgument("--master-ip is missing: the address of the node with --node-rank 0");
  }
  if (!flags.include.empty() || !flags.exclude.empty()) {
    return InvalidArgument("--include and --exclude choose among hosts; use --gpu-ids on a node");
  }
  TESSERA_ASSIGN_OR_RETURN(int64_t each, RanksOfEach(flags, flags.num_nodes));
  if (each == 0) each = std::max(machine.gpus, 1);
  LaunchPlan plan;
  plan.ranks = each * flags.num_nodes;
  plan.node = NodePlan{.first_rank = flags.node_rank * each,
                       .ranks = each,
                       .world_size = plan.ranks,
                       .master_addr = flags.master_ip,
                       .master_port = flags.master_port > 0 ? flags.master_port : kUsualPort};
  plan.arguments = {machine.program};
  plan.arguments.insert(plan.arguments.end(), flags.command.begin(), flags.command.end());
  return plan;
}

}  // namespace

bool IsThisMachine(const std::string& name) {
  std::array<char, 256> own{};
  gethostname(own.data(), own.size() - 1);
  return name == "localhost" || name == "127.0.0.1" || name == own.data();
}

StatusOr<std::vector<LaunchHost>> ParseHostFile(const std::string& file, std::string_view text) {
  std::vector<LaunchHost> hosts;
  std::set<std::string> seen;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::vector<std::string> words = Words(std::string(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty()) continue;
    LaunchHost host{words[0], 1, Concat(file, ":", number)};
    if (!IsHostName(host.name)) {
      return InvalidArgument(host.where, ": '", host.name, "' is no host name");
    }
    if (words.size() > 2) {
      return InvalidArgument(host.where, ": '", words[2],
                             "' is too much; a line is `host slots=N`");
    }
    if (words.size() == 2) {
      const std::string& slots = words[1];
      const char* last = slots.data() + slots.size();
      const bool is_slots = slots.starts_with("slots=");
      const auto [stop, error] =
          std::from_chars(slots.data() + (is_slots ? 6 : 0), last, host.slots);
      if (!is_slots || error != std::errc() || stop != last || host.slots < 1 ||
          host.slots > kMostSlots) {
        return InvalidArgument(host.where, ": '", slots, "' is not slots=N with N in 1..",
                               kMostSlots);
      }
    }
    if (!seen.insert(host.name).second) {
      return InvalidArgument(host.where, ": host '", host.name, "' is there twice");
    }
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) return InvalidArgument(file, ": no host in it");
  return hosts;
}

int VisibleGpus(int all, const char* visible) {
  if (visible == nullptr) return all;
  std::set<std::string> seen;
  for (const std::string& id : std::vector<std::string>(absl::StrSplit(visible, ','))) {
    int index = 0;
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), index);
    const bool is_index = error == std::errc() && end == id.data() + id.size();
    const bool is_uuid = id.starts_with("GPU-") || id.starts_with("MIG-");
    if (!(is_uuid || (is_index && index >= 0 && index < all)) || !seen.insert(id).second) break;
  }
  return static_cast<int>(seen.size());
}

StatusOr<std::vector<std::string>> ParseEnvironmentFile(const std::string& file,
                                                        std::string_view text) {
  std::vector<std::string> entries;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    absl::StripTrailingAsciiWhitespace(&line);
    if (line.empty() || line[0] == '#') continue;
    const size_t equals = line.find('=');
    const bool is_name =
        equals != 0 && equals != std::string::npos &&
        std::isdigit(static_cast<unsigned char>(line[0])) == 0 &&
        std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(equals), [](char c) {
          return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0;
        });
    if (!is_name) {
      return InvalidArgument(file, ":", number, ": '", line, "' is not NAME=VALUE");
    }
    entries.push_back(std::move(line));
  }
  return entries;
}

StatusOr<LaunchPlan> PlanLaunch(const LaunchFlags& flags, const Machine& machine) {
  if (flags.num_nodes < 0 || flags.num_gpus < 0 || flags.num_gpus > kMostSlots || flags.ranks < 0 ||
      flags.ranks > kMostRanks) {
    return InvalidArgument("--num-nodes, --num-gpus and --num-processes must be positive");
  }
  if (flags.master_port < 0 || flags.master_port > 65535) {
    return InvalidArgument("--master-port ", flags.master_port, " is no port");
  }
  if (flags.command.empty()) {
    return InvalidArgument("the command is missing: tessera launch --num-gpus 2 -- train ...");
  }
  if (flags.standalone && flags.num_nodes > 1) {
    return InvalidArgument("--standalone is one node, and --num-nodes says ", flags.num_nodes);
  }
  if (flags.node_rank >= 0 && flags.num_nodes > 1) return PlanNode(flags, machine);
  if (flags.node_rank > 0) {
    return InvalidArgument("--node-rank ", flags.node_rank, " needs --num-nodes above it");
  }
  LaunchPlan plan;
  TESSERA_ASSIGN_OR_RETURN(plan.hosts, HostsOf(flags));
  const bool filters = !flags.include.empty() || !flags.exclude.empty();
  if (filters) {
    if (!flags.include.empty() && !flags.exclude.empty()) {
      return InvalidArgument("--include and --exclude exclude one another");
    }
    if (flags.num_nodes > 0 || flags.num_gpus > 0 || flags.ranks > 0 || !flags.gpu_ids.empty()) {
      return InvalidArgument("--include and --exclude say which GPUs of which hosts there are; ",
                             "--num-nodes, --num-gpus, --num-processes and --gpu-ids do too");
    }
    if (plan.hosts.empty()) plan.hosts = {{"localhost", std::max(machine.gpus, 1), "localhost"}};
    TESSERA_RETURN_IF_ERROR(FilterHosts(flags, &plan.hosts));
  }
  TESSERA_ASSIGN_OR_RETURN(const int64_t each, RanksOfEach(flags, std::ssize(plan.hosts)));
  plan.ranks_of_each = each;
  std::vector<std::string>& a = plan.arguments;
  a = {"mpirun"};
  if (machine.is_root) a.push_back("--allow-run-as-root");
  a.insert(a.end(), {"--bind-to", "none"});
  bool is_crowded = false;
  plan.ranks = 0;
  // Hosts whose ranks see the same GPUs are one part of mpirun's line.
  struct Part {
    std::string hosts;
    int64_t ranks = 0;
    std::string gpus;
  };
  std::vector<Part> parts;
  for (const LaunchHost& host : plan.hosts) {
    const int64_t ranks = plan.ranks_of(host);
    is_crowded = is_crowded || ranks > host.slots;
    const std::string gpus = host.gpus.empty() ? flags.gpu_ids : absl::StrJoin(host.gpus, ",");
    if (parts.empty() || parts.back().gpus != gpus) parts.push_back({"", 0, gpus});
    Part& part = parts.back();
    part.hosts += Concat(part.hosts.empty() ? "" : ",", host.name, ":", ranks);
    part.ranks += ranks;
    plan.ranks += ranks;
  }
  if (plan.hosts.empty()) {
    plan.ranks = each > 0 ? each : std::max(machine.gpus, 1);
    is_crowded = plan.ranks > machine.cores;
    // Without a name, cores that a hypervisor hides from mpirun would still limit it.
    parts = {{Concat("localhost:", plan.ranks), plan.ranks, flags.gpu_ids}};
  }
  if (is_crowded) a.insert(a.end(), {"--oversubscribe", "--mca", "mpi_yield_when_idle", "1"});
  if (!machine.ssh.empty()) a.insert(a.end(), {"--mca", "plm_rsh_agent", machine.ssh});
  for (const Part& part : parts) {
    if (&part != &parts.front()) a.push_back(":");
    a.insert(a.end(), {"--host", part.hosts, "-n", std::to_string(part.ranks)});
    if (!flags.master_ip.empty()) a.insert(a.end(), {"-x", "MASTER_ADDR=" + flags.master_ip});
    if (flags.master_port > 0) {
      a.insert(a.end(), {"-x", Concat("MASTER_PORT=", flags.master_port)});
    }
    if (!part.gpus.empty()) a.insert(a.end(), {"-x", "CUDA_VISIBLE_DEVICES=" + part.gpus});
    for (const std::string& entry : machine.environment) {
      if (!part.gpus.empty() && entry.starts_with("CUDA_VISIBLE_DEVICES=")) continue;
      a.insert(a.end(), {"-x", entry});
    }
    a.push_back(machine.program);
    a.insert(a.end(), flags.command.begin(), flags.command.end());
  }
  return plan;
}

std::vector<std::string> EnvironmentOf(const NodePlan& node, int64_t local) {
  return {Concat("RANK=", node.first_rank + local),
          Concat("WORLD_SIZE=", node.world_size),
          Concat("LOCAL_RANK=", local),
          Concat("LOCAL_WORLD_SIZE=", node.ranks),
          "MASTER_ADDR=" + node.master_addr,
          Concat("MASTER_PORT=", node.master_port),
          "TORCHELASTIC_USE_AGENT_STORE=False"};
}

Status ProbeHosts(const LaunchPlan& plan, const std::string& ssh) {
  const std::string program = ssh.empty() ? "ssh" : ssh;
  std::vector<Probe> probes;
  for (const LaunchHost& host : plan.hosts) {
    if (IsThisMachine(host.name)) continue;
    probes.emplace_back().host = &host;
    StartProbe(program, &probes.back());
  }
  const auto limit = std::chrono::steady_clock::now() + kProbeLimit;
  Status result;
  for (Probe& probe : probes) {
    while (probe.pid > 0 && waitpid(probe.pid, &probe.status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > limit) kill(probe.pid, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const bool is_reached =
        probe.pid > 0 && WIFEXITED(probe.status) && WEXITSTATUS(probe.status) == 0;
    if (!is_reached && result.ok()) {
      result = Failure(StatusCode::kUnavailable, "host '", probe.host->name, "' (",
                       probe.host->where, ") cannot be reached: ", Reason(probe, program));
    }
    if (probe.errors != nullptr) std::fclose(probe.errors);
  }
  return result;
}

std::string ShellLine(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const std::string& argument : arguments) {
    const bool is_plain =
        !argument.empty() && std::all_of(argument.begin(), argument.end(), [](char c) {
          return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                 std::strchr("_-./:=,@+%", c) != nullptr;
        });
    words.push_back(is_plain ? argument
                             : "'" + absl::StrReplaceAll(argument, {{"'", "'\\''"}}) + "'");
  }
  return absl::StrJoin(words, " ");
}

}  // namespace tessera::tools
