// SPDX-License-Identifier: Apache-2.0
#include "train/ranks/rank_place.h"

#include <sched.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "dist/comm/agreement.h"
#include "ops/kernel_choice.h"
#include "train/report/run_log.h"

namespace tessera::train {
namespace {

// The host's name and the processors this rank may use: ranks with the same share them.
std::string Place() {
  std::string place = HostName();
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return place;
  place += ' ';
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &cpus)) place += Concat(i, ",");
  }
  return place;
}

std::string HostOf(const std::string& place) { return place.substr(0, place.find(' ')); }

}  // namespace

RankPlace FindRankPlace(Communicator& world) {
  const std::vector<std::string> places = dist::GatherStrings(world, Place());
  const std::string& mine = places[static_cast<size_t>(world.rank())];
  RankPlace place = {.local_rank = 0, .local_leader = 0, .local_size = 0, .sharing = 0};
  for (size_t r = 0; r < places.size(); ++r) {
    if (places[r] == mine) ++place.sharing;
    if (HostOf(places[r]) != HostOf(mine)) continue;
    if (place.local_size++ == 0) place.local_leader = static_cast<int>(r);
    if (static_cast<int>(r) < world.rank()) ++place.local_rank;
  }
  return place;
}

void SetUpProcess(const RunConfig& config, const RankPlace& place) {
  SetKernelChoice({.alike = config.deterministic});
  SetNumThreads(config.threads ? static_cast<int>(std::min<int64_t>(*config.threads, 1024))
                               : std::max(1, AvailableCores() / place.sharing));
}

}  // namespace tessera::train
