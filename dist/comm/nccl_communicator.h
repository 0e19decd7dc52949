// SPDX-License-Identifier: Apache-2.0
// Ranks with a GPU each, over NCCL. Compiled with --config=cuda only.
//
//   TESSERA_ASSIGN_OR_RETURN(const std::string id, NewNcclId());          // on rank 0, then to all
//   TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> world,
//                            OpenNccl(id, rank, size, {.device = local_rank}));
//
// Tensors must be on the communicator's device. An operation runs on streams of its own, after what
// the default stream had been given when it was called; `Wait` lets the default stream wait for it,
// not the host (`Barrier` waits on the host). NCCL adds bfloat16 and float16 in their own dtype at
// every hop, so reductions of these are cast to float32 before and back after. bool takes kMax and
// kMin, no sum.
//
// Messages have no tags in NCCL: those from one rank to another are received in the order in which
// they were sent, and the tag is not compared. Those to higher and to lower ranks run beside each
// other, so that two ranks may both send first.
//
// Set-up does not block: it ends with an error when the other ranks do not come within
// `init_timeout`. A thread watches what is under way: when something takes longer than
// `collective_timeout`, or NCCL reports a failure, it prints one line, aborts NCCL's communicators,
// so that the GPU is free again, and ends the process.
#ifndef TESSERA_DIST_COMM_NCCL_COMMUNICATOR_H_
#define TESSERA_DIST_COMM_NCCL_COMMUNICATOR_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "core/communicator.h"

namespace tessera::dist {

struct NcclOptions {
  int device = 0;
  double init_timeout = 300;        // seconds
  double collective_timeout = 600;  // seconds
};

// Bytes that name a new group. One line when there is no driver or no GPU.
StatusOr<std::string> NewNcclId();

// The group "world" of all ranks that were given the same id. Collective.
StatusOr<std::shared_ptr<Communicator>> OpenNccl(const std::string& id, int rank, int size,
                                                 const NcclOptions& options);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_NCCL_COMMUNICATOR_H_
