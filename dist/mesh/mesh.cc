// SPDX-License-Identifier: Apache-2.0
#include "dist/mesh/mesh.h"

#include <utility>

#include "base/error.h"

namespace tessera::dist {
namespace {

// Where a rank stands.
struct Place {
  int dp_size;
  int edp_size;
  int tp;
  int place;  // among the ranks of its dp group, in the order of the world
  int ep;
  int edp;
  int pp;
  int dp() const { return ep * edp_size + edp; }
};

Place PlaceOf(const MeshSizes& sizes, int world_size, int rank) {
  const Status valid = CheckMesh(sizes, world_size);
  TESSERA_CHECK(valid.ok(), "mesh", Message(valid));
  TESSERA_CHECK(0 <= rank && rank < world_size, "mesh", "rank ", rank, " of ", world_size);
  const int dp_size = world_size / (sizes.tp * sizes.pp);
  const int place = rank / sizes.tp % dp_size;
  return {.dp_size = dp_size,
          .edp_size = dp_size / sizes.ep,
          .tp = rank % sizes.tp,
          .place = place,
          .ep = place % sizes.ep,
          .edp = place / sizes.ep,
          .pp = rank / (sizes.tp * dp_size)};
}

}  // namespace

Status CheckMesh(const MeshSizes& sizes, int world_size) {
  if (sizes.tp < 1) return InvalidArgument("tp must be at least 1, not ", sizes.tp);
  if (sizes.pp < 1) return InvalidArgument("pp must be at least 1, not ", sizes.pp);
  if (sizes.ep < 1) return InvalidArgument("ep must be at least 1, not ", sizes.ep);
  if (sizes.cp < 1) return InvalidArgument("cp must be at least 1, not ", sizes.cp);
  const int64_t model = int64_t{sizes.tp} * sizes.pp;
  const char* hint = world_size == 1 ? "; start the command under mpirun or tessera launch" : "";
  if (world_size % model == 0) {
    const int64_t data = world_size / model;
    for (const auto& [name, size] : {std::pair("cp", sizes.cp), std::pair("ep", sizes.ep)}) {
      if (data % size == 0) continue;
      return InvalidArgument(name, " ", size, " does not divide the ", data, " data-parallel rank",
                             data == 1 ? "" : "s", hint);
    }
    return OkStatus();
  }
  if (sizes.pp == 1) {
    return InvalidArgument("tp ", sizes.tp, " does not divide the world of ", world_size,
                           world_size == 1 ? " rank" : " ranks", hint);
  }
  return InvalidArgument("tp ", sizes.tp, " x pp ", sizes.pp, " = ", model,
                         " does not divide the world of ", world_size,
                         world_size == 1 ? " rank" : " ranks", hint);
}

Mesh::Mesh() : Mesh(SingleProcessCommunicator("world"), {}) {}

Mesh::Mesh(const Group& world, const MeshSizes& sizes) : world_(world) {
  const Place at = PlaceOf(sizes, world->size(), world->rank());
  tp_ = world->Split(at.pp * at.dp_size + at.place, at.tp, "tp");
  dp_ = world->Split(at.pp * sizes.tp + at.tp, at.dp(), "dp");
  pp_ = world->Split(at.place * sizes.tp + at.tp, at.pp, "pp");
  model_ = world->Split(at.place, at.pp * sizes.tp + at.tp, "model");
  // Without expert parallelism no more groups are made.
  ep_ = sizes.ep == 1 ? SingleProcessCommunicator("ep") : dp_->Split(at.edp, at.ep, "ep");
  edp_ = sizes.ep == 1 ? dp_ : dp_->Split(at.ep, at.edp, "edp");
  cp_ = sizes.cp == 1 ? SingleProcessCommunicator("cp")
                      : dp_->Split(at.dp() / sizes.cp, at.dp() % sizes.cp, "cp");
}

Mesh::Mesh(const MeshSizes& sizes, int world_size, int rank, const GroupMaker& make) {
  const Place at = PlaceOf(sizes, world_size, rank);
  world_ = make(rank, world_size, "world");
  tp_ = make(at.tp, sizes.tp, "tp");
  dp_ = make(at.dp(), at.dp_size, "dp");
  pp_ = make(at.pp, sizes.pp, "pp");
  model_ = make(at.pp * sizes.tp + at.tp, sizes.pp * sizes.tp, "model");
  ep_ = make(at.ep, sizes.ep, "ep");
  edp_ = sizes.ep == 1 ? dp_ : make(at.edp, at.edp_size, "edp");
  cp_ = make(at.dp() % sizes.cp, sizes.cp, "cp");
}

int Mesh::printing_rank() const { return (pp_->size() - 1) * dp_->size() * tp_->size(); }

std::string Mesh::Describe() const {
  return Concat("rank ", world_->rank(), " (dp ", dp_->rank(),
                cp_->size() > 1 ? Concat(", cp ", cp_->rank()) : "",
                ep_->size() > 1 ? Concat(", ep ", ep_->rank()) : "", ", pp ", pp_->rank(), ", tp ",
                tp_->rank(), ")");
}

}  // namespace tessera::dist
