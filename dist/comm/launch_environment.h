// SPDX-License-Identifier: Apache-2.0
// How this process was started, as its environment tells.
//
//   TESSERA_ASSIGN_OR_RETURN(const LaunchEnvironment e, ReadLaunchEnvironment(std::getenv));
//   e.started_by, e.rank, e.size, e.local_rank
//
// Looked for in this order, since mpirun and Slurm may have started the launcher that started this:
//   torchrun  RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT (and LOCAL_WORLD_SIZE),
//   from
//             an agent, which sets TORCHELASTIC_USE_AGENT_STORE; where it is True, as with
//             torchrun, the agent has the port, and the ranks meet 10,000 ports away
//   mpirun    OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_RANK (and ..._LOCAL_RANK, ..._LOCAL_SIZE)
//   torchrun  the same five variables from another launcher
//   Slurm     SLURM_PROCID and SLURM_NTASKS (and SLURM_LOCALID); MPI gets its ranks by PMI
//   torchrun  two of RANK, WORLD_SIZE and MASTER_ADDR: the others are missing
//   refused   PMI_SIZE or MV2_COMM_WORLD_SIZE above 1: another MPI's launcher
//   else      one process, and so is RANK=0 with WORLD_SIZE=1
#ifndef TESSERA_DIST_COMM_LAUNCH_ENVIRONMENT_H_
#define TESSERA_DIST_COMM_LAUNCH_ENVIRONMENT_H_

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "core/device.h"

namespace tessera::dist {

enum class StartedBy { kAlone, kMpirun, kSlurm, kTorchrun };

// "one process", "mpirun", "Slurm", "torchrun".
std::string_view StartedByName(StartedBy started_by);

struct LaunchEnvironment {
  StartedBy started_by = StartedBy::kAlone;
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;  // 0: not said
  // torchrun only.
  std::string master_addr;
  int master_port = 0;
};

// InvalidArgument naming the variable that is missing, is no number, or contradicts another.
// `get` gives a variable's value, or nullptr.
StatusOr<LaunchEnvironment> ReadLaunchEnvironment(
    const std::function<const char*(const char*)>& get);

// The device of a rank: `cuda` is shared out by local rank over the machine's GPUs; a device named
// exactly (`cuda:1`, `cpu`, `meta`) is every rank's.
StatusOr<Device> DeviceOfRank(std::string_view name, int local_rank, int num_gpus);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_LAUNCH_ENVIRONMENT_H_
