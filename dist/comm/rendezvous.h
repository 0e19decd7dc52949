// SPDX-License-Identifier: Apache-2.0
// How ranks without MPI find each other: rank 0 gives all others one short message over TCP.
//
//   TESSERA_ASSIGN_OR_RETURN(const std::string id,
//                            Rendezvous({"10.0.0.1", 29500, rank, size}, rank == 0 ? own_id : ""));
//
// Rank 0 listens on the port (of all its addresses); the others connect to address:port and try
// again until it is there. Each says which rank of how many it is. When all have come, all get rank
// 0's message and the connections end. Connections that say something else are dropped. There is no
// secret: the port must not be open to others than the job's hosts.
//
// Errors are one line: on rank 0 the ranks that have not come in time, a rank that came twice, or
// another number of ranks; on the others that rank 0 cannot be reached or gave up.
#ifndef TESSERA_DIST_COMM_RENDEZVOUS_H_
#define TESSERA_DIST_COMM_RENDEZVOUS_H_

#include <string>

#include "base/status.h"

namespace tessera::dist {

struct RendezvousOptions {
  std::string address;
  int port = 0;
  int rank = 0;
  int size = 1;
  double timeout = 300;  // seconds
};

// `message` (at most 64 KiB) counts on rank 0 alone; the result is the same on all ranks.
StatusOr<std::string> Rendezvous(const RendezvousOptions& options, const std::string& message);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_RENDEZVOUS_H_
