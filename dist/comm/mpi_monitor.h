// SPDX-License-Identifier: Apache-2.0
// The watchdog of a rank, and its answers to the watchdogs of others.
//
// Each rank's progress thread answers questions on a communicator of its own, also while the main
// thread computes or waits: where the rank is (dist/comm/rank_state.h). When something has waited
// for a moment (half a second with `check_collectives`, else two), its rank asks all others, and
// again until it is done. It ends the job with one line when
//   - a rank that must still arrive has ended (in every run);
//   - with `check_collectives`, ranks wait for each other: calls were reordered across groups;
//   - a wait has lasted longer than `collective_timeout`: the line names the call, who has arrived,
//     who is missing and where the missing are, or that they do not answer.
// The lowest rank that sees it speaks, the others wait a moment for the end. What is called
// differently within one group is found before it starts, by comparing contracts.
#ifndef TESSERA_DIST_COMM_MPI_MONITOR_H_
#define TESSERA_DIST_COMM_MPI_MONITOR_H_

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "dist/comm/mpi_library.h"
#include "dist/comm/rank_state.h"

namespace tessera::dist {

class MpiRuntime;

// All of it under the runtime's mutex, by the progress thread.
class MpiMonitor {
 public:
  using Clock = std::chrono::steady_clock;

  // Collective.
  explicit MpiMonitor(MpiRuntime& runtime);

  // Answers, asks and judges. Returns the line to end the job with, once it is time.
  std::optional<std::string> Poll();
  // This rank calls nothing any more; it still answers.
  void SetEnded() { has_ended_ = true; }
  // Before MPI ends.
  void Close();

 private:
  struct Outgoing {
    std::string text;
    MPI_Request request = nullptr;
  };

  RankState OwnState() const;
  // The own waits, also of what is under way while no thread is blocked.
  std::vector<WaitState> Waits(bool blocked_only) const;
  void PostReceive();
  void ReadMessages();
  void SendTo(int rank, int tag, std::string text);
  void Ask();
  void Judge();
  void Plan(const Finding& finding, double delay);

  MpiRuntime& runtime_;
  MPI_Comm comm_ = nullptr;
  bool has_ended_ = false;
  std::vector<char> buffer_;
  MPI_Request receive_ = nullptr;
  std::list<Outgoing> outgoing_;

  int64_t round_ = 0;
  bool is_asking_ = false;
  Clock::time_point asked_{};
  Snapshot answers_;
  std::string suspicion_;  // the circle that the last round found
  std::optional<Clock::time_point> report_at_;
  std::string report_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_MPI_MONITOR_H_
