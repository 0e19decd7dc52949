// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/world.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "dist/comm/agreement.h"
#include "dist/comm/mpi_communicator.h"
#include "dist/comm/rank_state.h"
#include "dist/comm/routed_communicator.h"
#include "dist/comm/socket_communicator.h"

namespace tessera::dist {
namespace {

GpuTransport gpu_transport;

int CountGpus() { return gpu_transport.count == nullptr ? 0 : gpu_transport.count(); }

bool ComputesOnGpu(const World& world) { return world.device.type == DeviceType::kCuda; }

// "ranks 0 and 3 share a GPU", or nothing where each rank has its own. `gpus` are their identities.
std::string SharedGpu(const std::vector<std::string>& gpus) {
  for (size_t r = 0; r < gpus.size(); ++r) {
    const auto first = std::find(gpus.begin(), gpus.end(), gpus[r]) - gpus.begin();
    if (first < std::ssize(gpus) && static_cast<size_t>(first) != r) {
      return Concat("ranks ", first, " and ", r, " share a GPU");
    }
  }
  return "";
}

// Tensors on the ranks' GPUs go by NCCL from now on, if each has one of its own. Collective.
Status AddGpuTransport(World* world, const WorldOptions& options) {
  Communicator& ranks = *world->communicator;
  const bool has_gpu = ComputesOnGpu(*world) && world->device.index < CountGpus();
  const std::vector<std::string> gpus =
      GatherStrings(ranks, has_gpu ? gpu_transport.identity(world->device.index) : "");
  if (std::any_of(gpus.begin(), gpus.end(), [](const auto& gpu) { return gpu.empty(); })) {
    return OkStatus();  // what is wrong with them is said where the device is first needed
  }
  const std::string shared = SharedGpu(gpus);
  if (!shared.empty()) {
    world->warning = Concat(shared, ": tensors travel through host memory");
    return OkStatus();
  }
  StatusOr<std::string> id = world->rank == 0 ? gpu_transport.new_id() : std::string();
  TESSERA_RETURN_IF_ERROR(AgreeOnStatus(ranks, id.status()));
  const std::string common = BroadcastString(ranks, *id);
  StatusOr<std::shared_ptr<Communicator>> opened = gpu_transport.open(common, *world, options);
  TESSERA_RETURN_IF_ERROR(AgreeOnStatus(ranks, opened.status()));
  world->transport += " and NCCL";
  world->communicator =
      RoutedCommunicator(std::move(world->communicator), *std::move(opened), world->device);
  return OkStatus();
}

// This rank's device and how its tensors travel. Collective.
Status FindDevice(const WorldOptions& options, World* world) {
  const StatusOr<Device> device = DeviceOfRank(options.device, world->local_rank, CountGpus());
  TESSERA_RETURN_IF_ERROR(AgreeOnStatus(*world->communicator, device.status()));
  world->device = *device;
  return AddGpuTransport(world, options);
}

StatusOr<World> OpenMpiWorld(const LaunchEnvironment& environment, const WorldOptions& options) {
  MpiOptions mpi_options;
  mpi_options.check_collectives = options.check_collectives;
  mpi_options.collective_timeout = options.collective_timeout;
  StatusOr<std::shared_ptr<MpiRuntime>> started = MpiRuntime::Start(mpi_options);
  if (!started.ok()) {
    return Failure(started.status().code(), RankList({environment.rank}), " of ", environment.size,
                   ": ", Message(started.status()));
  }
  const std::shared_ptr<MpiRuntime> runtime = *std::move(started);
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
  world.communicator = MpiWorldCommunicator(runtime);
  world.transport = "MPI";
  TESSERA_RETURN_IF_ERROR(FindDevice(options, &world));
  return world;
}

// Ranks that know each other by the environment only.
StatusOr<World> OpenTorchrunWorld(const LaunchEnvironment& e, const WorldOptions& options) {
  World world;
  world.rank = e.rank;
  world.size = e.size;
  world.local_rank = e.local_rank;
  world.local_size = std::max(e.local_size, 1);
  world.node = e.local_size > 0 ? e.rank / e.local_size : 0;
  world.started_by = e.started_by;
  world.abort = SocketMesh::Abort;
  world.transport = "TCP";
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<SocketMesh> mesh,
                           SocketMesh::Open({.meeting = {e.master_addr, e.master_port, e.rank,
                                                         e.size, options.rendezvous_timeout},
                                             .check_collectives = options.check_collectives,
                                             .collective_timeout = options.collective_timeout}));
  world.communicator = SocketWorldCommunicator(std::move(mesh));
  TESSERA_RETURN_IF_ERROR(FindDevice(options, &world));
  return world;
}

}  // namespace

void RegisterGpuTransport(const GpuTransport& transport) { gpu_transport = transport; }

void World::Abort(int code) const {
  std::fflush(nullptr);
  if (abort) abort(code);
  std::_Exit(code);
}

StatusOr<World> OpenWorld(const WorldOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(
      const LaunchEnvironment environment,
      ReadLaunchEnvironment([](const char* name) { return std::getenv(name); }));
  if (environment.size > 1) {
    return environment.started_by == StartedBy::kTorchrun ? OpenTorchrunWorld(environment, options)
                                                          : OpenMpiWorld(environment, options);
  }
  World world;
  world.started_by = environment.started_by;
  world.communicator = SingleProcessCommunicator("world");
  TESSERA_ASSIGN_OR_RETURN(world.device, DeviceOfRank(options.device, 0, CountGpus()));
  return world;
}

}  // namespace tessera::dist
