// SPDX-License-Identifier: Apache-2.0
// The ranks of a run as a mesh: which of them share a model, a batch, a stage.
//
//   TESSERA_RETURN_IF_ERROR(CheckMesh({.tp = 2, .pp = 2}, world->size()));
//   const Mesh mesh(world, {.tp = 2, .pp = 2});       // dp = world size / (tp * pp)
//   build.tensor_parallel = mesh.tp();
//
// Axes: `dp` (ranks that hold the same parameters), `pp` (stages of a pipeline) and `tp` (shares of
// every layer). Rank order: tp varies fastest, then dp, then pp (Megatron-LM's default), so that
// the ranks that talk most are neighbours on a host:
//   rank = (pp_rank * dp_size + place) * tp_size + tp_rank,  where place is dp_rank.
// Each axis is a group of the ranks that differ in it alone; `model` joins tp and pp: the ranks
// that together hold one copy of the parameters. Groups are made once, on construction.
//
// Context parallelism divides dp: `cp` neighbours in the order of dp ranks have the same rows of a
// batch, and share out the tokens of these. Ranks of other such groups see other rows:
//   data_rank = dp_rank / cp_size,  cp_rank = dp_rank % cp_size.
//
// Expert parallelism divides dp, too: `ep` neighbours share out the experts of a layer, and the
// ranks that hold the same experts are a group `edp`. Then
//   place = edp_rank * ep_size + ep_rank,  dp_rank = ep_rank * edp_size + edp_rank.
// The micro-batches of a step are numbered in the order of dp ranks. With this order the ranks of
// one edp group are neighbours, so a balanced sum over dp adds up each edp group first, and the
// sums of these groups then (parameter_store.h).
//
// A rank's place follows from its number, so that the mesh of one rank can be made without the
// others, of groups that only count what they are given (dist/comm/counting_communicator.h):
//   const Mesh mesh({.tp = 8, .pp = 4}, /*world_size=*/256, /*rank=*/77, LoneRankCommunicator);
#ifndef TESSERA_DIST_MESH_MESH_H_
#define TESSERA_DIST_MESH_MESH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "core/communicator.h"

namespace tessera::dist {

using Group = std::shared_ptr<Communicator>;

struct MeshSizes {
  int tp = 1;
  int pp = 1;
  int ep = 1;  // divides dp
  int cp = 1;  // divides dp
};

// Whether a world of that many ranks can be cut so; names the sizes.
Status CheckMesh(const MeshSizes& sizes, int world_size);

// Makes the group `name` of `size` ranks, of which this one is number `rank`.
using GroupMaker = std::function<Group(int rank, int size, const std::string& name)>;

class Mesh {
 public:
  // One process.
  Mesh();
  // Collective. Throws Error for sizes that CheckMesh refuses.
  Mesh(const Group& world, const MeshSizes& sizes);
  // Rank `rank` of a world of that size; `make` is asked for world, tp, dp, pp, model, ep, edp and
  // cp.
  // Not collective. Throws likewise.
  Mesh(const MeshSizes& sizes, int world_size, int rank, const GroupMaker& make);

  const Group& world() const { return world_; }
  const Group& dp() const { return dp_; }
  const Group& pp() const { return pp_; }
  const Group& tp() const { return tp_; }
  const Group& model() const { return model_; }
  const Group& ep() const { return ep_; }
  const Group& edp() const { return edp_; }
  const Group& cp() const { return cp_; }
  // Whose rows of a batch this rank sees, of how many.
  int data_rank() const { return dp_->rank() / cp_->size(); }
  int data_ranks() const { return dp_->size() / cp_->size(); }

  // The world's rank of the one that prints and writes what concerns the whole run: tp rank 0,
  // dp rank 0, last pipeline stage, which has the loss.
  int printing_rank() const;
  bool prints() const { return world_->rank() == printing_rank(); }

  // "rank 5 (dp 1, pp 0, tp 1)".
  std::string Describe() const;

 private:
  Group world_;
  Group dp_;
  Group pp_;
  Group tp_;
  Group model_;
  Group ep_;
  Group edp_;
  Group cp_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_MESH_MESH_H_
