// Commands that run on many ranks: who reports a failure, and how the job ends.
#ifndef TESSERA_TOOLS_PARALLEL_COMMAND_H_
#define TESSERA_TOOLS_PARALLEL_COMMAND_H_

#include <functional>

#include "core/status.h"
#include "dist/comm/world.h"

namespace tessera::tools {

// Runs `body` on this rank. A failure that all ranks have agreed on (train/agreement.h) is reported
// by rank 0 and returned by all as reported already. A rank that fails alone, by a status or an
// exception, reports it with its rank and ends the whole job.
Status RunOnRanks(const dist::World& world, const std::function<Status()>& body);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_PARALLEL_COMMAND_H_
