// SPDX-License-Identifier: Apache-2.0
// The watchdog of a rank, and its answers to the watchdogs of others, over any transport.
//
// Each rank answers questions, also while its main thread computes or waits: where the rank is
// (dist/comm/rank_state.h). When something has waited for a moment (half a second with
// `check_collectives`, else two), its rank asks all others, and again until it is done. The job
// ends with one line when
//   - a rank that must still arrive has ended (in every run);
//   - with `check_collectives`, ranks wait for each other: calls were reordered across groups;
//   - a wait has lasted longer than `collective_timeout`: the line names the call, who has arrived,
//     who is missing and where the missing are, or that they do not answer.
// The lowest rank that sees it speaks, the others wait a moment for the end. Calls that differ
// within one group are found before they start, by comparing contracts.
#ifndef TESSERA_DIST_COMM_RANK_MONITOR_H_
#define TESSERA_DIST_COMM_RANK_MONITOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dist/comm/rank_state.h"

namespace tessera::dist {

inline double SecondsSince(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

class RankMonitor {
 public:
  using Clock = std::chrono::steady_clock;
  enum Kind { kQuestion = 1, kAnswer = 2 };
  static constexpr size_t kLongestAnswer = 64 << 10;

  // What the monitor needs of the transport. It calls none of these but from its own functions.
  struct Rank {
    int rank = 0;
    int size = 1;
    bool check_collectives = false;
    double collective_timeout = 600;
    std::function<void(int rank, Kind kind, std::string text)> send;
    std::function<RankState()> state;
    // What this rank waits for, also what is under way while no thread is blocked.
    std::function<std::vector<WaitState>()> waits;
  };

  explicit RankMonitor(Rank rank) : rank_(std::move(rank)) {}

  // A message that another rank's monitor has sent.
  void Receive(int from, Kind kind, const std::string& text);
  // Asks and judges. Returns the line to end the job with, once it is time. `longest` is the
  // longest wait of this rank in seconds, 0 for none.
  std::optional<std::string> Poll(double longest);

 private:
  void Ask();
  void Judge();
  void Plan(const Finding& finding, double delay);

  const Rank rank_;
  int64_t round_ = 0;
  bool is_asking_ = false;
  Clock::time_point asked_{};
  Snapshot answers_;
  std::string suspicion_;  // the circle that the last round found
  std::optional<Clock::time_point> report_at_;
  std::string report_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_RANK_MONITOR_H_
