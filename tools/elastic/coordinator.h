// SPDX-License-Identifier: Apache-2.0
// The coordinator of an elastic run: the process that `tessera launch --max-restarts` is. It starts
// an agent on every host (tools/elastic/agent.h), starts it again where it has ended, and answers
// agents with what their hosts have to do (tools/elastic/membership.h).
#ifndef TESSERA_TOOLS_ELASTIC_COORDINATOR_H_
#define TESSERA_TOOLS_ELASTIC_COORDINATOR_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "tools/elastic/membership.h"

namespace tessera::tools {

struct AgentStart {
  std::string host;
  // The command that becomes the host's agent, on this machine or through ssh; the coordinator's
  // URL goes in the place of kCoordinatorUrl.
  std::vector<std::string> command;
  std::string toward;  // an address of the host, to find this machine's as the host sees it; "":
                       // the host is this machine
};
inline constexpr char kCoordinatorUrl[] = "{coordinator}";

struct CoordinatorOptions {
  MembershipOptions members;       // without `job`
  std::vector<AgentStart> agents;  // that this process starts; others come by themselves
  std::string address;             // of this machine, as other hosts see it; "": found out
  int port = 0;                    // to listen on; 0: any that is free
  std::string folder;              // of the run: it gets `events.jsonl`
  bool begins_afresh = false;      // rows of an earlier run go
};

// Runs until the run is over, and gives its exit code.
StatusOr<int> RunCoordinator(const CoordinatorOptions& options);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_ELASTIC_COORDINATOR_H_
