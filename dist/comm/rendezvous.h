// SPDX-License-Identifier: Apache-2.0
// How ranks without MPI find each other: each gives one short message over TCP, and all get those
// of all.
//
//   TESSERA_ASSIGN_OR_RETURN(const std::vector<RankPlace> ranks,
//                            Rendezvous({"10.0.0.1", 29500, rank, size}, own_port));
//   ranks[2].address, ranks[2].message
//
// Rank 0 listens on the port (of all its addresses); the others connect to address:port and try
// again until it is there. Each says which rank of how many it is, and its message. When all have
// come, all get the messages and the connections end. Connections that say something else are
// dropped. There is no secret: the port must not be open to others than the job's hosts.
//
// Errors are one line: on rank 0 the ranks that have not come in time, a rank that came twice, or
// another number of ranks; on the others that rank 0 cannot be reached or gave up.
#ifndef TESSERA_DIST_COMM_RENDEZVOUS_H_
#define TESSERA_DIST_COMM_RENDEZVOUS_H_

#include <string>
#include <vector>

#include "base/status.h"

namespace tessera::dist {

struct RendezvousOptions {
  std::string address;
  int port = 0;
  int rank = 0;
  int size = 1;
  double timeout = 300;  // seconds
};

struct RankPlace {
  std::string address;  // at which rank 0 sees the rank; of rank 0 the options' own
  std::string message;
};

// By rank, the same on all. A message has at most 4 KiB.
StatusOr<std::vector<RankPlace>> Rendezvous(const RendezvousOptions& options,
                                            const std::string& message);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_RENDEZVOUS_H_
