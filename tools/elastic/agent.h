// SPDX-License-Identifier: Apache-2.0
// The agent of a host in an elastic run: it starts and ends the ranks of its host, keeps their
// checkpoints in memory, and brings those of other hosts here.
//
//   return RunAgent({.coordinator = "http://10.0.0.1:29400", .host = "node3", .slots = 8,
//                    .command = {"tessera", "train", ...}});
//
// It does what the coordinator's orders say (tools/elastic/messages.h). Without an answer for half
// of `Order::silence` it kills its ranks, since the coordinator will take the host for lost. It
// then tries again for a minute before it ends. The ranks end with the agent, whatever ends that.
//
// Checkpoints lie in /dev/shm/tessera-<job>-<host>, or below TESSERA_MEMORY_FOLDER. An agent that
// is started again finds them. Folders that other agents left behind are removed.
#ifndef TESSERA_TOOLS_ELASTIC_AGENT_H_
#define TESSERA_TOOLS_ELASTIC_AGENT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::tools {

struct AgentOptions {
  std::string coordinator;           // its URL
  std::string host;                  // by which the coordinator knows this machine
  int64_t slots = 1;                 // ranks that may run here
  std::vector<std::string> command;  // of a rank, the program first
  std::string gpu_ids;               // CUDA_VISIBLE_DEVICES of the ranks; "": as it is here
};

// Returns the exit code of the process.
int RunAgent(const AgentOptions& options);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_ELASTIC_AGENT_H_
