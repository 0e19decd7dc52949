// SPDX-License-Identifier: Apache-2.0
// A group whose tensors take two ways: those of one device by a transport of its own (NCCL for a
// GPU), all others by another (MPI, TCP).
//
//   auto world = RoutedCommunicator(mpi, nccl, Device::Cuda(local_rank));
//   world->AllReduce(gradients, ReduceOp::kSum);   // on cuda:1: NCCL
//   world->AllGather(lengths, length);             // on the CPU: MPI
//
// Both must have the same ranks under the same numbers. `Barrier` is the first one's.
#ifndef TESSERA_DIST_COMM_ROUTED_COMMUNICATOR_H_
#define TESSERA_DIST_COMM_ROUTED_COMMUNICATOR_H_

#include <memory>

#include "core/communicator.h"

namespace tessera::dist {

std::shared_ptr<Communicator> RoutedCommunicator(std::shared_ptr<Communicator> others,
                                                 std::shared_ptr<Communicator> of_device,
                                                 const Device& device);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_ROUTED_COMMUNICATOR_H_
