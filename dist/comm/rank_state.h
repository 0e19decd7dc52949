// SPDX-License-Identifier: Apache-2.0
// Where every rank is, and what follows from it: the judgement behind the watchdog and the contract
// checks (dist/comm/mpi_monitor.h), as plain functions over the ranks' answers.
#ifndef TESSERA_DIST_COMM_RANK_STATE_H_
#define TESSERA_DIST_COMM_RANK_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::dist {

// Something a rank waits for.
struct WaitState {
  std::string group;         // its id
  int64_t number = 0;        // which of the group's collectives, from 1; 0: a message
  std::string text;          // DescribeCall
  uint64_t thread = 0;       // of the rank
  double seconds = 0;        // so far
  std::vector<int> members;  // world ranks of the group; of a message the other rank alone
};

// Where a rank is, for one that waits for it.
struct RankState {
  struct GroupState {
    int64_t calls = 0;    // collectives called so far
    uint64_t thread = 0;  // the thread that called last
    std::string last;     // DescribeCall of it
  };
  bool has_ended = false;
  uint64_t main_thread = 0;
  std::map<std::string, GroupState> groups;  // by id
  std::vector<WaitState> waits;              // of threads that are blocked
};

// As text, to be sent.
std::string EncodeState(const RankState& state);
// Nothing when the text is no state.
std::optional<RankState> DecodeState(const std::string& text);

// By world rank; nothing for a rank that does not answer.
using Snapshot = std::vector<std::optional<RankState>>;

// What was found, and the ranks that find the same: the lowest of them speaks.
struct Finding {
  std::string line;
  std::vector<int> observers;
};

// Members of the wait's group that have not called the collective, or the other rank of a message.
std::vector<int> MissingRanks(const WaitState& wait, int rank, const Snapshot& snapshot);

// A rank that has ended without what `rank` waits for.
std::optional<Finding> FindEndedRank(int rank, const Snapshot& snapshot);
// Ranks whose collectives wait for each other, `rank` among them: calls were reordered across
// groups. Messages are left out, since one that is on its way looks the same.
std::optional<Finding> FindCircle(int rank, const Snapshot& snapshot);
// What to say of a wait that took longer than `limit` seconds.
Finding DescribeTimeout(const WaitState& wait, int rank, double limit, const Snapshot& snapshot);

// The line about the members' differing calls in one group, in the order of `members` (world
// ranks): where one call is in the majority, the others are the guilty ones and stand first.
std::string DescribeMismatch(const std::string& group, const std::vector<int>& members,
                             const std::vector<std::string>& calls);

// "rank 1", "ranks 0, 2 and 3".
std::string RankList(const std::vector<int>& ranks);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_RANK_STATE_H_
