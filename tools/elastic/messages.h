// SPDX-License-Identifier: Apache-2.0
// What the agents of an elastic run and its coordinator tell each other, as JSON over HTTP.
//
//   POST /agent   an AgentReport; the answer is an Order
//
// An agent reports several times a second, and at once when something has changed. A report has the
// whole state of its host, and an order says what the host should be doing, so that a message that
// is lost or comes twice changes nothing.
//
// An agent answers, on a port of its own, for the checkpoints in its memory:
//   GET /<step>/<file>   the bytes of a file
#ifndef TESSERA_TOOLS_ELASTIC_MESSAGES_H_
#define TESSERA_TOOLS_ELASTIC_MESSAGES_H_

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "train/run/elastic_run.h"

namespace tessera::tools {

// Why an agent has killed a rank that was well.
inline constexpr char kStoppedByOrder[] = "stopped";

// A rank's process.
struct RankReport {
  int64_t rank = 0;
  bool is_running = true;
  int64_t code = 0;          // once it has ended: its exit code, 128 + the signal that killed it
  bool was_stopped = false;  // killed by the agent, as the order said
  std::string reason = {};   // why the agent killed it where no order said so
  train::RankProgress progress = {};
};

enum class HostPhase {
  kIdle,     // nothing is running
  kReady,    // has the files that the order names
  kRunning,  // ranks run, or have ended by themselves
  kFailed,   // cannot do what the order says: `problem`
};

struct AgentReport {
  std::string host;   // its name in the host file
  std::string agent;  // which process reports: another one is another agent
  int64_t slots = 1;  // ranks that it can run
  int64_t file_port = 0;
  int64_t free_port = 0;   // for ranks to meet, where rank 0 is here
  int64_t generation = 0;  // of the order that `phase` and `ranks` belong to
  HostPhase phase = HostPhase::kIdle;
  std::string problem = {};
  std::vector<RankReport> ranks = {};
  // By step of each checkpoint in memory, its files here, and all that its index names.
  struct Files {
    std::string id;  // of the index: the same on hosts that saved together
    std::vector<std::string> here;
    std::vector<std::string> all;
  };
  std::map<int64_t, Files> memory = {};
};

enum class Command {
  kWait,    // keep nothing running
  kFetch,   // nothing running; keep of the checkpoints up to `step`, and bring `files`
  kRun,     // start the ranks, once, or let them run
  kSignal,  // the same, and give the ranks `signal`, once
  kEnd,     // keep nothing running, remove the checkpoints in memory, and end
};

struct Order {
  Command command = Command::kWait;
  std::string job;  // checkpoints in memory belong to it
  int64_t generation = 0;
  double silence = 10;  // seconds: an agent that hears nothing for half of it ends its ranks
  // Checkpoints in memory of later steps are of starts that were given up: they are removed. So is
  // one of `step` that is not `id`.
  int64_t newest = std::numeric_limits<int64_t>::max();
  // kFetch, kRun and kSignal:
  int64_t step = -1;    // of the checkpoint in memory to continue from; -1: none
  std::string id = {};  // Files::id of it
  std::map<std::string, std::string> files = {};  // that the host shall have: the URL of each
  int64_t first_rank = 0;
  int64_t ranks = 0;  // of this host
  int64_t world_size = 0;
  int64_t full_ranks = 0;  // for which the command is written
  int64_t interval = 10;   // steps between checkpoints in memory
  std::string master_addr = {};
  int64_t master_port = 0;
  int64_t signal = 0;
};

std::string ToText(const AgentReport& report);
StatusOr<AgentReport> ParseReport(const std::string& text);
std::string ToText(const Order& order);
StatusOr<Order> ParseOrder(const std::string& text);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_ELASTIC_MESSAGES_H_
