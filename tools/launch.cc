// SPDX-License-Identifier: Apache-2.0
// `tessera launch`: starts a command on several ranks, with mpirun or node by node.
#include "tools/launch.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/file.h"
#include "core/thread_pool.h"
#include "dist/comm/launch_environment.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/elastic/child.h"
#include "tools/launch_elastic.h"
#include "tools/settings.h"
#include "train/foreign/accelerate_config.h"

namespace tessera::tools {
namespace {

std::string ThisProgram() {
  std::error_code error;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  return error ? "tessera" : path;
}

// Without the driver, which a launcher need not wake.
int CountGpus() {
  int gpus = 0;
  while (access(Concat("/dev/nvidia", gpus).c_str(), F_OK) == 0) ++gpus;
  return VisibleGpus(gpus, std::getenv("CUDA_VISIBLE_DEVICES"));
}

// What the ranks of other hosts get besides Open MPI's own variables, as DeepSpeed's launcher does:
// those of the transports, and the lines of `.deepspeed_env` at home and here.
StatusOr<std::vector<std::string>> ForwardedEnvironment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    for (const char* prefix :
         {"NCCL_", "UCX_", "TESSERA_", "CUDA_DEVICE_ORDER=", "CUDA_VISIBLE_DEVICES="}) {
      if (std::string_view(*entry).starts_with(prefix)) entries.emplace_back(*entry);
    }
  }
  const char* home = std::getenv("HOME");
  const char* name = std::getenv("DS_ENV_FILE");
  const std::string file = name != nullptr ? name : ".deepspeed_env";
  for (const std::string& folder : {std::string(home == nullptr ? "" : home), std::string(".")}) {
    const std::string path = file.starts_with("/") ? file : JoinPath(folder, file);
    if (folder.empty() || !PathExists(path) || IsDirectory(path)) continue;
    TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> more, ParseEnvironmentFile(path, text));
    entries.insert(entries.end(), more.begin(), more.end());
    if (file.starts_with("/")) break;
  }
  return entries;
}

// Becomes the command; returns only if that fails.
Status Become(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = arguments;
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  if (arguments[0] == "mpirun" && errno == ENOENT) {
    return NotFound("mpirun is not installed (Debian's package openmpi-bin)");
  }
  return Internal(arguments[0], ": ", std::strerror(errno));
}

StatusOr<Machine> ThisMachine() {
  Machine machine;
  machine.program = ThisProgram();
  machine.cores = AvailableCores();
  machine.gpus = CountGpus();
  machine.is_root = geteuid() == 0;
  const char* const ssh = std::getenv("TESSERA_SSH");
  if (ssh != nullptr && *ssh != '\0') machine.ssh = ssh;
  TESSERA_ASSIGN_OR_RETURN(machine.environment, ForwardedEnvironment());
  return machine;
}

std::atomic<int> stop_signal{0};

// After one rank has failed, the others see it themselves; after this time they are stopped.
constexpr std::chrono::seconds kForTheOthers{10};

// Starts this node's ranks and ends with the code of the first that fails. Signals that stop the
// launcher are passed on.
Status RunNode(const LaunchPlan& plan, const std::string& gpu_ids) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    struct sigaction action {};
    action.sa_handler = [](int number) { stop_signal = number; };
    sigaction(signal, &action, nullptr);
  }
  std::set<pid_t> running;
  const auto signal_all = [&](int number) {
    for (const pid_t pid : running) kill(pid, number);
  };
  for (int64_t local = 0; local < plan.node->ranks; ++local) {
    std::vector<std::string> own = EnvironmentOf(*plan.node, local);
    if (!gpu_ids.empty()) own.push_back("CUDA_VISIBLE_DEVICES=" + gpu_ids);
    const StatusOr<pid_t> pid = StartChild(plan.arguments, own);
    if (!pid.ok()) {
      signal_all(SIGKILL);
      return pid.status();
    }
    running.insert(*pid);
  }
  int code = 0;
  auto stop_at = std::chrono::steady_clock::time_point::max();
  while (!running.empty()) {
    if (const int number = stop_signal.exchange(0)) signal_all(number);
    if (std::chrono::steady_clock::now() > stop_at) signal_all(SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::erase_if(running, [&](pid_t pid) {
      const std::optional<int> ended = EndedChild(pid);
      if (ended.value_or(0) != 0 && code == 0) {
        code = *ended;
        stop_at = std::chrono::steady_clock::now() + kForTheOthers;
      }
      return ended.has_value();
    });
  }
  std::exit(code);
}

// The ranks of a node as a shell would start them, a line each.
std::string NodeLines(const LaunchPlan& plan) {
  std::string lines;
  for (int64_t local = 0; local < plan.node->ranks; ++local) {
    for (const std::string& entry : EnvironmentOf(*plan.node, local)) lines += entry + " ";
    lines += ShellLine(plan.arguments) + "\n";
  }
  return lines;
}

// Started by another launcher already: the ranks are there, and only have to agree with the flags.
Status RunInPlace(const LaunchFlags& flags, const LaunchPlan& plan, const Machine& machine) {
  if (!flags.master_ip.empty()) setenv("MASTER_ADDR", flags.master_ip.c_str(), 1);
  if (flags.master_port > 0) {
    setenv("MASTER_PORT", std::to_string(flags.master_port).c_str(), 1);
  }
  TESSERA_ASSIGN_OR_RETURN(
      const dist::LaunchEnvironment environment,
      dist::ReadLaunchEnvironment([](const char* name) { return std::getenv(name); }));
  const bool is_counted = flags.num_gpus > 0 || !flags.hostfile.empty();
  if (is_counted && environment.size != plan.ranks) {
    return InvalidArgument("the flags ask for ", plan.ranks, " ranks, but the environment (",
                           dist::StartedByName(environment.started_by), ") has ", environment.size);
  }
  std::vector<std::string> command = {machine.program};
  command.insert(command.end(), flags.command.begin(), flags.command.end());
  if (flags.dry_run) return WriteOut(ShellLine(command) + "\n");
  return Become(command);
}

// The flags of `accelerate launch`, which win over its file.
struct AccelerateFlags {
  std::map<std::string, std::string> values;  // by name: "fsdp_sharding_strategy"

  // Those that the command line has.
  nlohmann::json Given(const CLI::App& command) const {
    nlohmann::json given = nlohmann::json::object();
    for (const auto& [name, value] : values) {
      if (command.count(FlagName(name)) > 0) given[name] = value;
    }
    return given;
  }
};

// Sets how ranks are started, where flags of our own leave it open, and hands the rest on to the
// command.
Status ApplyAccelerate(const CLI::App& command, const AccelerateFlags& accelerate,
                       const Machine& machine, LaunchFlags* flags) {
  nlohmann::json settings = nlohmann::json::object();
  const nlohmann::json given = accelerate.Given(command);
  if (!flags->accelerate.empty()) {
    TESSERA_ASSIGN_OR_RETURN(settings, train::ReadAccelerateSettings(flags->accelerate));
  }
  settings.update(given);
  const std::string source = flags->accelerate.empty() ? "flags" : flags->accelerate;
  TESSERA_ASSIGN_OR_RETURN(const train::AccelerateConfig config,
                           train::TranslateAccelerate(settings, source));
  const bool counts = settings.contains("num_processes") && config.num_processes > 0;
  if (flags->ranks == 0 && flags->num_gpus == 0 && counts) flags->ranks = config.num_processes;
  if (flags->num_nodes == 0 && config.num_machines > 1) flags->num_nodes = config.num_machines;
  if (flags->hostfile.empty()) flags->hostfile = config.hostfile;
  if (config.num_machines > 1 && flags->hostfile.empty()) {
    if (config.main_process_ip.empty() && flags->master_ip.empty()) {
      return InvalidArgument(source, ": main_process_ip is missing: with num_machines ",
                             config.num_machines, ", the address of the machine whose ",
                             "machine_rank is 0");
    }
    if (flags->node_rank < 0) flags->node_rank = config.machine_rank;
  } else if (config.machine_rank > 0) {
    return InvalidArgument(source, ": machine_rank is ", config.machine_rank,
                           "; with a host file of all machines, start once, on the first");
  }
  if (flags->master_ip.empty()) flags->master_ip = config.main_process_ip;
  if (flags->master_port == 0) flags->master_port = config.main_process_port;
  if (flags->gpu_ids.empty() && config.gpu_ids != "all") flags->gpu_ids = config.gpu_ids;
  std::vector<std::string>& words = flags->command;
  if (words.empty() || words[0] != "train") return OkStatus();
  const auto names = [&](std::string_view flag) {
    return std::any_of(words.begin(), words.end(),
                       [&](const std::string& word) { return word.starts_with(flag); });
  };
  if (!names("--accelerate")) {
    words.insert(words.end(),
                 {"--accelerate", given.empty() ? flags->accelerate : settings.dump()});
  }
  // Accelerate's ranks are on GPUs unless it is told otherwise.
  if (!config.use_cpu && machine.gpus > 0 && !names("--device")) {
    words.insert(words.end(), {"--device", "cuda"});
  }
  return OkStatus();
}

Status Start(const LaunchPlan& plan, const LaunchFlags& flags, const Machine& machine) {
  if (flags.is_elastic()) return RunElastic(plan, flags, machine);
  if (plan.node.has_value()) {
    if (flags.dry_run) return WriteOut(NodeLines(plan));
    return RunNode(plan, flags.gpu_ids);
  }
  if (flags.dry_run) return WriteOut(ShellLine(plan.arguments) + "\n");
  TESSERA_RETURN_IF_ERROR(ProbeHosts(plan, machine.ssh));
  return Become(plan.arguments);
}

Status RunLaunch(const CLI::App& command, LaunchFlags flags, const AccelerateFlags& accelerate) {
  TESSERA_ASSIGN_OR_RETURN(const Machine machine, ThisMachine());
  if (!flags.accelerate.empty() || !accelerate.Given(command).empty()) {
    TESSERA_RETURN_IF_ERROR(ApplyAccelerate(command, accelerate, machine, &flags));
  }
  if (!flags.agent.empty()) BecomeAgent(flags, machine);
  TESSERA_ASSIGN_OR_RETURN(const LaunchPlan plan, PlanLaunch(flags, machine));
  if (flags.not_call_launch) return RunInPlace(flags, plan, machine);
  return Start(plan, flags, machine);
}

}  // namespace

Status StartRanks(const LaunchFlags& flags) {
  TESSERA_ASSIGN_OR_RETURN(const Machine machine, ThisMachine());
  TESSERA_ASSIGN_OR_RETURN(const LaunchPlan plan, PlanLaunch(flags, machine));
  return Start(plan, flags, machine);
}

void AddLaunchCommand(CLI::App& app, CommandState& state) {
  CLI::App* command = app.add_subcommand("launch", "Run a command on several ranks, by mpirun");
  using F = LaunchFlags;
  OptionTable table = OptionTable::Of<F>("Options");
  table
      .Add("num_nodes", &F::num_nodes, "hosts to use; 0: all",
           {.aliases = {{"nnodes", "torchrun"}, {"num_machines", "Accelerate"}}})
      .Add("num_gpus", &F::num_gpus,
           "ranks of each host; 0: its slots, or the GPUs that CUDA_VISIBLE_DEVICES leaves here",
           {.aliases = {{"nproc_per_node", "torchrun"}, {"num_accelerators", "DeepSpeed"}}})
      .Add("num_processes", &F::ranks,
           "ranks of all hosts, which share them evenly; 0: --num-gpus of each")
      .Add("gpu_ids", &F::gpu_ids, "CUDA_VISIBLE_DEVICES of the ranks", {.type = "0,1"})
      .Add("accelerate", &F::accelerate,
           "Accelerate's configuration: how many ranks there are, and what they train with; its "
           "launcher's flags (--use-fsdp, --fsdp-sharding-strategy, ...) win over it",
           {.type = "FILE", .aliases = {{"config_file", "Accelerate"}}})
      .Add("master_ip", &F::master_ip, "given to the ranks as MASTER_ADDR",
           {.type = "IP",
            .aliases = {{"master_addr", "torchrun"}, {"main_process_ip", "Accelerate"}}})
      .Add("master_port", &F::master_port, "given to the ranks as MASTER_PORT",
           {.type = "PORT", .aliases = {{"main_process_port", "Accelerate"}}})
      .Add("node_rank", &F::node_rank,
           "which node this is, where each is started by hand with --master-ip of node 0; -1: the "
           "first host starts all",
           {.aliases = {{"machine_rank", "Accelerate"}}})
      .Add(
          "max_restarts", &F::max_restarts,
          "an elastic run: how often ranks start again after some were lost; hosts may come and go",
          {.least = 0, .unset = "the first lost rank ends the job"})
      .Add("min_ranks", &F::min_ranks,
           "an elastic run: with fewer ranks it waits for hosts to come; 0: all ranks",
           {.least = 0})
      .Add("heartbeat_timeout", &F::heartbeat_timeout,
           "seconds after which a silent host of an elastic run is lost", {.least = 1})
      .Add("memory_save_interval", &F::memory_save_interval,
           "steps between checkpoints in the hosts' memory, in an elastic run; 0: none",
           {.least = 0})
      .Add("standalone", &F::standalone, "one node, as torchrun's flag says")
      .Add("include", &F::include, "the hosts, or GPUs of hosts, to use", {.type = "HOST:0,1@HOST"})
      .Add("exclude", &F::exclude, "the hosts, or GPUs of hosts, to leave out",
           {.type = "HOST:0,1@HOST"})
      .Add("not_call_launch", &F::not_call_launch,
           "another launcher has started this process: run the command in it")
      .Add("dry_run", &F::dry_run, "only print what would be run");
  // -H is DeepSpeed's; the command keeps its words as they are.
  auto own = std::make_shared<LaunchFlags>();
  command->add_option("-H,--hostfile", own->hostfile, "lines `host slots=N` [this machine]")
      ->type_name("FILE");
  // For the agents that a coordinator starts.
  command->add_option("--agent", own->agent)->group("");
  command->add_option("--agent-host", own->agent_host)->group("");
  auto accelerate = std::make_shared<AccelerateFlags>();
  RunWith<F>(command, state, std::move(table), {},
             [own, accelerate](const CLI::App& words, F flags) {
               flags.hostfile = own->hostfile;
               flags.command = own->command;
               flags.agent = own->agent;
               flags.agent_host = own->agent_host;
               return RunLaunch(words, flags, *accelerate);
             });
  command->add_option("command", own->command, "the command of every rank, after --")
      ->type_name("-- COMMAND ...")
      ->expected(-1);
  for (const train::AccelerateFlag& flag : train::AccelerateFlags()) {
    const std::string name = FlagName(flag.name);
    if (command->get_option_no_throw(name) != nullptr) continue;  // one of our own
    CLI::Option* option = command->add_option(name, accelerate->values[flag.name])->group("");
    if (flag.is_switch) option->expected(0, 1)->default_str("true");
  }
  command->footer(
      "Example:\n"
      "  tessera launch --hostfile hosts --num-gpus 4 -- train gpt2 --data book.txt --out run\n"
      "Every other host must let this one in by ssh without a question (or by the program that\n"
      "TESSERA_SSH names), and have this program and the data under the same paths.");
}

}  // namespace tessera::tools
