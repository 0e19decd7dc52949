// SPDX-License-Identifier: Apache-2.0
// Programs of one or many ranks: who tells a failure, and how the job ends.
//
//   int main() {
//     return train::RunOnRanks({}, [](const dist::World& world) -> Status {
//       TESSERA_ASSIGN_OR_RETURN(const dist::Mesh mesh, train::MakeMesh(config,
//       world.communicator));
//       ...                                // may throw, too
//     });
//   }
//
// When one rank fails, `mpirun -n 2 program` prints one line, `error: rank 1: matmul: ...`, and
// ends the others, which wait for it. Rank 0 prints a failure that the ranks have agreed on
// (train/ranks/agreement.h).
#ifndef TESSERA_TRAIN_RANKS_RUN_ON_RANKS_H_
#define TESSERA_TRAIN_RANKS_RUN_ON_RANKS_H_

#include <functional>

#include "base/status.h"
#include "dist/comm/world.h"

namespace tessera::train {

// Runs `body` with the ranks that this process was started with. What it returns is main's: 0, or
// the code of the failure, whose line is on standard error.
int RunOnRanks(const dist::WorldOptions& options,
               const std::function<Status(const dist::World&)>& body);

// The same in a world that is open. A failure that all ranks know of is returned by all, of which
// ReportFailure prints it on one; a rank that fails alone does not return.
Status RunOnRanks(const dist::World& world, const std::function<Status()>& body);

// What `body` gives; an exception becomes a failure.
Status Guarded(const std::function<Status()>& body);

// A failure that someone knows of already: ReportFailure gives its exit code and prints nothing.
Status Reported(Status failure);

// Prints the line of a failure, which begins with `error: `, and gives the exit code: 2 for wrong
// usage (InvalidArgument, NotFound), 1 for all else, 0 for OK and Cancelled.
int ReportFailure(const Status& status);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RANKS_RUN_ON_RANKS_H_
