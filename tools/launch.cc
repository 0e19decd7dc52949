// `tessera launch`: starts a command on several ranks with mpirun.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "core/file.h"
#include "core/thread_pool.h"
#include "dist/comm/launch_environment.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/launch_plan.h"

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
    for (const char* prefix : {"NCCL_", "UCX_", "TESSERA_", "CUDA_DEVICE_ORDER="}) {
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

Status RunLaunch(const LaunchFlags& flags) {
  Machine machine;
  machine.program = ThisProgram();
  machine.cores = AvailableCores();
  machine.gpus = CountGpus();
  machine.is_root = geteuid() == 0;
  if (const char* ssh = std::getenv("TESSERA_SSH")) machine.ssh = ssh;
  TESSERA_ASSIGN_OR_RETURN(machine.environment, ForwardedEnvironment());
  TESSERA_ASSIGN_OR_RETURN(const LaunchPlan plan, PlanLaunch(flags, machine));
  if (flags.not_call_launch) return RunInPlace(flags, plan, machine);
  if (flags.dry_run) return WriteOut(ShellLine(plan.arguments) + "\n");
  TESSERA_RETURN_IF_ERROR(ProbeHosts(plan, machine.ssh));
  return Become(plan.arguments);
}

}  // namespace

void AddLaunchCommand(CLI::App& app, CommandState& state) {
  CLI::App* command = app.add_subcommand("launch", "run a command on several ranks, by mpirun");
  auto flags = std::make_shared<LaunchFlags>();
  command->add_option("-H,--hostfile", flags->hostfile, "lines `host slots=N` (this machine)")
      ->type_name("FILE");
  command->add_option("--num-nodes,--nnodes,--num-machines", flags->num_nodes, "hosts to use (all)")
      ->type_name("N");
  command
      ->add_option("--num-gpus,--nproc-per-node,--num-accelerators", flags->num_gpus,
                   "ranks of each host (its slots; the GPUs that CUDA_VISIBLE_DEVICES leaves here)")
      ->type_name("N");
  command
      ->add_option("--num-processes", flags->ranks, "ranks of all hosts, which share them evenly")
      ->type_name("N");
  command->add_option("--gpu-ids", flags->gpu_ids, "CUDA_VISIBLE_DEVICES of the ranks")
      ->type_name("0,1");
  command
      ->add_option("--master-ip,--master-addr,--main-process-ip", flags->master_ip,
                   "given to the ranks as MASTER_ADDR")
      ->type_name("IP");
  command
      ->add_option("--master-port,--main-process-port", flags->master_port,
                   "given to the ranks as MASTER_PORT")
      ->type_name("PORT");
  command->add_flag("--not-call-launch", flags->not_call_launch,
                    "another launcher has started this process: run the command in it");
  command->add_flag("--dry-run", flags->dry_run, "only print what would be run");
  command->add_option("command", flags->command, "the command of every rank, after --")
      ->type_name("-- COMMAND ...")
      ->expected(-1);
  command->footer(
      "Example:\n"
      "  tessera launch --hostfile hosts --num-gpus 4 -- train gpt2 --data book.txt --out run\n"
      "Every other host must let this one in by ssh without a question (or by the program that\n"
      "TESSERA_SSH names), and have this program and the data under the same paths.");
  command->callback([flags, &state] { state.run = [flags] { return RunLaunch(*flags); }; });
}

}  // namespace tessera::tools
