// SPDX-License-Identifier: Apache-2.0
// Ranks as processes, over Open MPI: the Communicator of CPU tensors, and of tensors of any device
// by way of host memory, so that several ranks may share one GPU.
//
//   TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<MpiRuntime> mpi, MpiRuntime::Start({}));
//   std::shared_ptr<Communicator> world = MpiWorldCommunicator(mpi);
//   CommHandlePtr handle = world->AllReduce(t, ReduceOp::kSum);
//   ...                                      // continues meanwhile
//   handle->Wait();
//
// Dtypes: all; bool takes kMax (any) and kMin (all) but no sum. bfloat16 and float16 are reduced in
// float32, rounded once at the end. Every rank gets the same bits from an all-reduce; the order of
// a sum is MPI's choice by size and number of ranks, the same in every run of the same layout.
//
// Several threads may issue at once as long as each group is used by one; groups are split by one
// thread at a time. A dropped handle waits first, unless it is of a Send, which continues by itself
// and keeps its operand's memory until then. Operands above `largest_count` elements go in pieces.
// Operands without elements and groups of one rank cost no message. Tags are 0 .. 2^20.
//
// With `check_collectives`, and when a collective waits longer than `collective_timeout`, the job
// is ended with one line on standard error (dist/comm/mpi_monitor.h). Misuse that one rank can see
// alone (chunks that do not fit, a wrong root, strides) throws Error.
#ifndef TESSERA_DIST_COMM_MPI_COMMUNICATOR_H_
#define TESSERA_DIST_COMM_MPI_COMMUNICATOR_H_

#include <memory>

#include "core/communicator.h"
#include "dist/comm/mpi_runtime.h"

namespace tessera::dist {

// The group of all ranks, named "world". Groups keep the runtime alive.
std::shared_ptr<Communicator> MpiWorldCommunicator(std::shared_ptr<MpiRuntime> runtime);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_MPI_COMMUNICATOR_H_
