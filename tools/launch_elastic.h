// SPDX-License-Identifier: Apache-2.0
// `tessera launch --max-restarts N --min-ranks K -- train ...`: ranks and hosts may come and go.
#ifndef TESSERA_TOOLS_LAUNCH_ELASTIC_H_
#define TESSERA_TOOLS_LAUNCH_ELASTIC_H_

#include "base/status.h"
#include "tools/launch_plan.h"

namespace tessera::tools {

// Becomes the coordinator of the plan's hosts, or, on a node other than the first, the agent of
// this one. Ends the process with the run's exit code; returns only where nothing could begin.
Status RunElastic(const LaunchPlan& plan, const LaunchFlags& flags, const Machine& machine);

// Becomes the agent that a coordinator has started.
[[noreturn]] void BecomeAgent(const LaunchFlags& flags, const Machine& machine);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_LAUNCH_ELASTIC_H_
