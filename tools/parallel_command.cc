#include "tools/parallel_command.h"

#include "tools/command_line.h"
#include "train/agreement.h"

namespace tessera::tools {

Status RunOnRanks(const dist::World& world, const std::function<Status()>& body) {
  if (world.size == 1) return body();
  const Status status = Guarded(body);
  if (status.ok()) return status;
  if (train::IsAgreed(status)) {
    if (world.rank == 0) ReportFailure(status);
    world.communicator->Barrier();  // the first rank to end takes the others with it
    return AlreadyReported(status);
  }
  const Status named = Failure(status.code(), "rank ", world.rank, ": ", Message(status));
  world.Abort(ReportFailure(named));
}

}  // namespace tessera::tools
