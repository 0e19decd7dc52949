// SPDX-License-Identifier: Apache-2.0
// Where this rank runs beside the others: its machine, and the processors that it shares.
//
//   const RankPlace place = FindRankPlace(*mesh.world());
//   SetUpProcess(config, place);
#ifndef TESSERA_TRAIN_RANKS_RANK_PLACE_H_
#define TESSERA_TRAIN_RANKS_RANK_PLACE_H_

#include "core/communicator.h"
#include "train/config/run_config.h"

namespace tessera::train {

struct RankPlace {
  int local_rank = 0;    // among the ranks of this machine, in the order of the world's
  int local_leader = 0;  // the world's rank of the first of them
  int local_size = 1;
  int sharing = 1;  // ranks of this machine that may use the same processors
};

// Collective.
RankPlace FindRankPlace(Communicator& world);

// This process's threads, as many as the configuration asks for or this rank's share of the
// processors, and whether kernels must be the same on all ranks.
void SetUpProcess(const RunConfig& config, const RankPlace& place);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RANKS_RANK_PLACE_H_
