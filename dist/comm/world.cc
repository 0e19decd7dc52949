#include "dist/comm/world.h"

#include <cstdio>
#include <cstdlib>

#include "core/device.h"
#include "dist/comm/mpi_communicator.h"

namespace tessera::dist {
namespace {

NcclWorldOpener nccl_world = nullptr;

StatusOr<World> OpenMpiWorld(const LaunchEnvironment& environment, const WorldOptions& options) {
  MpiOptions mpi_options;
  mpi_options.check_collectives = options.check_collectives;
  mpi_options.collective_timeout = options.collective_timeout;
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<MpiRuntime> runtime, MpiRuntime::Start(mpi_options));
  World world;
  world.rank = runtime->world()->rank;
  world.size = runtime->world()->size;
  world.local_rank = runtime->local_rank();
  world.local_size = runtime->local_size();
  world.node = runtime->node();
  world.started_by = environment.started_by;
  world.abort = MpiRuntime::Abort;
  if (world.size != environment.size) {
    return InvalidArgument(StartedByName(environment.started_by), " started ", environment.size,
                           " ranks, but MPI sees ", world.size,
                           environment.started_by == StartedBy::kSlurm
                               ? ": Slurm must give MPI its ranks (srun --mpi=pmix, or mpirun)"
                               : ": mpirun and this program must be of one Open MPI");
  }
  world.communicator = MpiWorldCommunicator(std::move(runtime));
  return world;
}

}  // namespace

void RegisterNcclWorld(NcclWorldOpener opener) { nccl_world = opener; }

void World::Abort(int code) const {
  std::fflush(nullptr);
  if (abort) abort(code);
  std::_Exit(code);
}

StatusOr<World> OpenWorld(const WorldOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(
      const LaunchEnvironment environment,
      ReadLaunchEnvironment([](const char* name) { return std::getenv(name); }));
  if (environment.size == 1) {
    World world;
    world.started_by = environment.started_by;
    world.communicator = SingleProcessCommunicator("world");
    return world;
  }
  if (environment.started_by != StartedBy::kTorchrun) return OpenMpiWorld(environment, options);
  TESSERA_ASSIGN_OR_RETURN(const Device device, Device::Parse(options.device));
  if (device.type != DeviceType::kCuda) {
    return InvalidArgument(
        "ranks on the ", options.device, " are started by mpirun (mpirun -n ", environment.size,
        " ...): a torchrun-style environment (RANK, WORLD_SIZE) serves GPUs only");
  }
  if (nccl_world == nullptr) {
    return InvalidArgument("RANK=", environment.rank, " WORLD_SIZE=", environment.size,
                           " ask for NCCL, and this program was built without CUDA");
  }
  return nccl_world(environment, options);
}

}  // namespace tessera::dist
