// SPDX-License-Identifier: Apache-2.0
// Who sends how many bytes to whom in a planned step.
//
//   SentBytes sent;
//   for (const dist::CommCall& call : meter.calls()) AddCall(call, mesh, &sent);
//   for (const auto& [to, bytes] : LinksOf(sent, mesh)) ...   // `to` is a rank of the world
//
// The algorithms are those of dist/comm/counting_communicator.h. A rank sends to its right
// neighbour of the group's ring: all-reduce, reduce-scatter, all-gather, broadcast. An all-to-all
// sends each chunk to its owner, and a message goes to its destination. Places in groups, and so
// the order of rings, are those of dist/mesh/mesh.h.
#ifndef TESSERA_TRAIN_PLAN_LINKS_H_
#define TESSERA_TRAIN_PLAN_LINKS_H_

#include <cstdint>
#include <map>
#include <string>

#include "dist/comm/counting_communicator.h"
#include "dist/mesh/mesh.h"

namespace tessera::train {

// Bytes by group, then by the distance in the group from the sender to the receiver, which is 1 for
// the right neighbour. Ranks that do the same have the same table, wherever they are in the mesh.
using SentBytes = std::map<std::string, std::map<int, int64_t>>;

// Adds what one call of the mesh's rank sends. Throws Error for a group that no mesh has.
void AddCall(const dist::CommCall& call, const dist::Mesh& mesh, SentBytes* sent);

// Bytes by the world's rank that gets them, for the mesh's rank. No entry is zero.
std::map<int, int64_t> LinksOf(const SentBytes& sent, const dist::Mesh& mesh);

// The world's rank of the member with this number of the group of the mesh's rank.
int WorldRankOf(const dist::Mesh& mesh, const std::string& group, int member);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_PLAN_LINKS_H_
