// SPDX-License-Identifier: Apache-2.0
// Starts ranks for a command that asks for them itself, as `tessera launch` would.
#ifndef TESSERA_TOOLS_LAUNCH_H_
#define TESSERA_TOOLS_LAUNCH_H_

#include "base/status.h"
#include "tools/launch_plan.h"

namespace tessera::tools {

// Becomes mpirun, or starts this node's ranks and ends with their exit code. Returns only when
// nothing was started, or after printing the command of a dry run.
Status StartRanks(const LaunchFlags& flags);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_LAUNCH_H_
