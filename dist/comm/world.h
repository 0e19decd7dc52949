// SPDX-License-Identifier: Apache-2.0
// What a process knows about the ranks it runs with, however it was started.
//
//   TESSERA_ASSIGN_OR_RETURN(World world, OpenWorld({.collective_timeout = 600}));
//   world.communicator->AllReduce(t, ReduceOp::kSum)->Wait();
//
// Each rank has its device: `cuda` gives the ranks of a machine its GPUs in turn. Where every rank
// has a GPU of its own, tensors on it travel by NCCL, however the ranks were started; ranks that
// share one exchange them through host memory. Tensors on the CPU go by MPI under `mpirun` and
// Slurm. A torchrun-style start has no MPI: ranks meet at MASTER_ADDR:MASTER_PORT, and their CPU
// tensors go over TCP. One process alone starts neither and pays for neither
// (dist/comm/launch_environment.h has the rules).
//
// The end: the last owner of the communicators waits for the other ranks. A rank that fails by
// itself prints its line and calls `Abort`, or the others would wait for it until the watchdog
// speaks; leaving by an exception, or by `exit`, aborts the job when the process exits.
#ifndef TESSERA_DIST_COMM_WORLD_H_
#define TESSERA_DIST_COMM_WORLD_H_

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "core/communicator.h"
#include "dist/comm/launch_environment.h"

namespace tessera::dist {

struct WorldOptions {
  // What the ranks compute on: `cpu`, `cuda` (shared out by local rank) or one GPU, `cuda:1`.
  std::string device = "cpu";
  bool check_collectives = false;
  double collective_timeout = 600;  // seconds
  double rendezvous_timeout =
      300;  // seconds until all ranks of a torchrun-style start must be there
};

struct World {
  std::shared_ptr<Communicator> communicator;
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among this machine's ranks
  int local_size = 1;
  int node = 0;   // which machine, in the order of their lowest ranks
  Device device;  // this rank's
  StartedBy started_by = StartedBy::kAlone;
  std::string transport;  // of tensors: "MPI", "TCP", "MPI and NCCL", "TCP and NCCL"
  std::string warning;    // one line of what slows the ranks down; usually empty

  // Ends all ranks at once, with this exit code; nothing after it runs.
  [[noreturn]] void Abort(int code) const;
  std::function<void(int code)> abort;
};

// One line for an inconsistent environment (InvalidArgument, naming the variable), for a world
// whose MPI sees fewer ranks than the environment promises, and for what the transport lacks. Once
// per process.
StatusOr<World> OpenWorld(const WorldOptions& options);

// The GPUs of this machine and how ranks reach one another's, from a library that is linked in
// (dist/comm/nccl_communicator.h).
struct GpuTransport {
  // The GPUs that this process sees.
  int (*count)() = nullptr;
  // Of one of them: the same in every process that sees it, and no other GPU's.
  std::string (*identity)(int index) = nullptr;
  // What rank 0 gives to all ranks of a new group.
  StatusOr<std::string> (*new_id)() = nullptr;
  StatusOr<std::shared_ptr<Communicator>> (*open)(const std::string& id, const World& world,
                                                  const WorldOptions& options) = nullptr;
};
void RegisterGpuTransport(const GpuTransport& transport);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_WORLD_H_
