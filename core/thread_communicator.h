// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: for tests of everything parallel, without MPI.
//
//   RunRanks(4, [](std::shared_ptr<Communicator> world) { ... world->rank() ... });
//
// Collectives rendezvous inside the call and combine contributions in rank order, so results have
// the same bits on every rank and in every run. Ranks that issue different collectives, or other
// dtypes or counts, get an Error that names both; when one rank throws, the others waiting in a
// collective throw too instead of hanging.
#ifndef TESSERA_CORE_THREAD_COMMUNICATOR_H_
#define TESSERA_CORE_THREAD_COMMUNICATOR_H_

#include <functional>
#include <memory>

#include "core/communicator.h"

namespace tessera {

// Runs `body` once per rank, each on a thread of its own with its rank of one shared group, and
// returns when all have ended. Rethrows the exception that was thrown first.
void RunRanks(int size, const std::function<void(std::shared_ptr<Communicator> world)>& body);

}  // namespace tessera

#endif  // TESSERA_CORE_THREAD_COMMUNICATOR_H_
