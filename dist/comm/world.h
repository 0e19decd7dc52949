// What a process knows about the ranks it runs with, however it was started.
//
//   TESSERA_ASSIGN_OR_RETURN(World world, OpenWorld({.collective_timeout = 600}));
//   world.communicator->AllReduce(t, ReduceOp::kSum)->Wait();
//
// `mpirun` and Slurm give MPI its ranks, and the communicator is MPI's. A torchrun-style start has
// no MPI: there the communicator is NCCL's, bootstrapped over TCP at MASTER_ADDR:MASTER_PORT, and a
// run on the CPU is refused. One process alone starts neither and pays for neither
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

#include "core/communicator.h"
#include "core/status.h"
#include "dist/comm/launch_environment.h"

namespace tessera::dist {

struct WorldOptions {
  std::string device = "cpu";  // what the run computes on: decides whether torchrun is refused
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
  int node = 0;  // which machine, in the order of their lowest ranks
  StartedBy started_by = StartedBy::kAlone;

  // Ends all ranks at once, with this exit code; nothing after it runs.
  [[noreturn]] void Abort(int code) const;
  std::function<void(int code)> abort;
};

// One line for an inconsistent environment (InvalidArgument, naming the variable), for a world
// whose MPI sees fewer ranks than the environment promises, and for what the transport lacks. Once
// per process.
StatusOr<World> OpenWorld(const WorldOptions& options);

// The world of a torchrun-style start, from a library linked in (dist/comm/nccl_communicator.h).
using NcclWorldOpener = StatusOr<World> (*)(const LaunchEnvironment&, const WorldOptions&);
void RegisterNcclWorld(NcclWorldOpener opener);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_WORLD_H_
