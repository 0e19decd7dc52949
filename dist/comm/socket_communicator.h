// SPDX-License-Identifier: Apache-2.0
// Ranks as processes over TCP: the Communicator of CPU tensors, and of tensors of any device by way
// of host memory, where a launcher gives the ranks an environment and no MPI (torchrun).
//
//   TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<SocketMesh> mesh, SocketMesh::Open(options));
//   std::shared_ptr<Communicator> world = SocketWorldCommunicator(mesh);
//
// Dtypes, threads, handles and errors are those of dist/comm/mpi_communicator.h. A reduction adds
// the ranks' elements in the order of the ranks, so that all ranks get the same bits, those of
// ranks as threads and of up to 16 ranks over MPI too. Each group has a thread that carries out its
// collectives in the order of their calls.
#ifndef TESSERA_DIST_COMM_SOCKET_COMMUNICATOR_H_
#define TESSERA_DIST_COMM_SOCKET_COMMUNICATOR_H_

#include <memory>

#include "core/communicator.h"
#include "dist/comm/socket_mesh.h"

namespace tessera::dist {

// The group of all ranks, named "world". Groups keep the mesh alive.
std::shared_ptr<Communicator> SocketWorldCommunicator(std::shared_ptr<SocketMesh> mesh);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_SOCKET_COMMUNICATOR_H_
