// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/launch_environment.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

namespace tessera::dist {
namespace {

using Get = std::function<const char*(const char*)>;

// The number in `variable`, at least `lowest`; `missing` when it is not set and `missing` >= 0.
StatusOr<int> ReadNumber(const Get& get, const char* variable, int lowest, int highest,
                         int missing = -1) {
  const char* value = get(variable);
  if (value == nullptr) {
    if (missing >= 0) return missing;
    return InvalidArgument("the environment has no ", variable, ", which this kind of start needs");
  }
  const std::string_view text = value;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < lowest ||
      number > highest) {
    return InvalidArgument("the environment's ", variable, "=\"", text, "\" is no number in ",
                           lowest, "..", highest);
  }
  return number;
}

struct Variables {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

// Set by torchrun's agents, and by this program's.
constexpr const char* kAgentStore = "TORCHELASTIC_USE_AGENT_STORE";
constexpr int kMost = 1 << 24;
constexpr int kBesideTheAgent = 10000;

Status ReadRanks(const Get& get, const Variables& names, bool needs_local, LaunchEnvironment* e) {
  TESSERA_ASSIGN_OR_RETURN(e->size, ReadNumber(get, names.size, 1, kMost));
  TESSERA_ASSIGN_OR_RETURN(e->rank, ReadNumber(get, names.rank, 0, kMost));
  if (e->rank >= e->size) {
    return InvalidArgument("the environment's ", names.rank, "=", e->rank, " is not below ",
                           names.size, "=", e->size);
  }
  TESSERA_ASSIGN_OR_RETURN(e->local_rank,
                           ReadNumber(get, names.local_rank, 0, kMost, needs_local ? -1 : e->rank));
  e->local_size = 0;
  if (names.local_size == nullptr) return OkStatus();
  TESSERA_ASSIGN_OR_RETURN(e->local_size, ReadNumber(get, names.local_size, 1, kMost, 0));
  if (e->local_size > 0 && e->local_rank >= e->local_size) {
    return InvalidArgument("the environment's ", names.local_rank, "=", e->local_rank,
                           " is not below ", names.local_size, "=", e->local_size);
  }
  return OkStatus();
}

Status ReadTorchrun(const Get& get, LaunchEnvironment* e) {
  TESSERA_RETURN_IF_ERROR(
      ReadRanks(get, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, true, e));
  const char* address = get("MASTER_ADDR");
  if (address == nullptr || *address == '\0') {
    return InvalidArgument("the environment has no MASTER_ADDR, which this kind of start needs");
  }
  e->master_addr = address;
  TESSERA_ASSIGN_OR_RETURN(e->master_port, ReadNumber(get, "MASTER_PORT", 1, 65535));
  // torchrun's agent listens on the port itself.
  const char* const agent = get(kAgentStore);
  if (agent != nullptr && std::string_view(agent) == "True") {
    e->master_port += e->master_port > 55535 ? -kBesideTheAgent : kBesideTheAgent;
  }
  return OkStatus();
}

}  // namespace

std::string_view StartedByName(StartedBy started_by) {
  switch (started_by) {
    case StartedBy::kAlone:
      return "one process";
    case StartedBy::kMpirun:
      return "mpirun";
    case StartedBy::kSlurm:
      return "Slurm";
    case StartedBy::kTorchrun:
      return "torchrun";
  }
  return "";
}

StatusOr<LaunchEnvironment> ReadLaunchEnvironment(const Get& get) {
  const auto all = [&](std::initializer_list<const char*> variables) {
    return std::all_of(variables.begin(), variables.end(),
                       [&](const char* variable) { return get(variable) != nullptr; });
  };
  const auto is = [&](const char* variable, std::string_view value) {
    const char* const text = get(variable);
    return text != nullptr && text == value;
  };
  // One replica of a cluster's job: it has nobody to talk to.
  const bool is_one = is("RANK", "0") && is("WORLD_SIZE", "1");
  const bool is_whole =
      !is_one && all({"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"});
  LaunchEnvironment e;
  const auto torchrun = [&]() -> StatusOr<LaunchEnvironment> {
    e.started_by = StartedBy::kTorchrun;
    TESSERA_RETURN_IF_ERROR(ReadTorchrun(get, &e));
    return e;
  };
  // Under mpirun or Slurm, an agent that is one of their processes.
  if (is_whole && get(kAgentStore) != nullptr) return torchrun();
  if (all({"OMPI_COMM_WORLD_SIZE"})) {
    e.started_by = StartedBy::kMpirun;
    TESSERA_RETURN_IF_ERROR(ReadRanks(get,
                                      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                       "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                      false, &e));
    return e;
  }
  if (is_whole) return torchrun();
  if (all({"SLURM_PROCID", "SLURM_NTASKS"})) {
    e.started_by = StartedBy::kSlurm;
    TESSERA_RETURN_IF_ERROR(
        ReadRanks(get, {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr}, false, &e));
    return e;
  }
  if (!is_one && (all({"RANK", "WORLD_SIZE"}) || all({"RANK", "MASTER_ADDR"}) ||
                  all({"WORLD_SIZE", "MASTER_ADDR"}))) {
    return torchrun();
  }
  for (const char* const size : {"PMI_SIZE", "MV2_COMM_WORLD_SIZE"}) {
    if (get(size) == nullptr || is(size, "1")) continue;
    return InvalidArgument("the environment's ", size, "=", get(size),
                           " is of another MPI's launcher (MPICH, Intel MPI, MVAPICH); start the "
                           "ranks with Open MPI's mpirun, with srun --mpi=pmix or with torchrun");
  }
  return e;
}

StatusOr<Device> DeviceOfRank(std::string_view name, int local_rank, int num_gpus) {
  TESSERA_ASSIGN_OR_RETURN(Device device, Device::Parse(name));
  if (name == "cuda" && num_gpus > 0) device.index = local_rank % num_gpus;
  return device;
}

}  // namespace tessera::dist
