// SPDX-License-Identifier: Apache-2.0
#include "dist/mesh/mesh.h"

#include "base/error.h"

namespace tessera::dist {
namespace {

// Where a rank stands.
struct Place {
  int dp_size;
  int tp;
  int dp;
  int pp;
};

Place PlaceOf(const MeshSizes& sizes, int world_size, int rank) {
  const Status valid = CheckMesh(sizes, world_size);
  TESSERA_CHECK(valid.ok(), "mesh", Message(valid));
  TESSERA_CHECK(0 <= rank && rank < world_size, "mesh", "rank ", rank, " of ", world_size);
  const int dp_size = world_size / (sizes.tp * sizes.pp);
  return {dp_size, rank % sizes.tp, rank / sizes.tp % dp_size, rank / (sizes.tp * dp_size)};
}

}  // namespace

Status CheckMesh(const MeshSizes& sizes, int world_size) {
  if (sizes.tp < 1) return InvalidArgument("tp must be at least 1, not ", sizes.tp);
  if (sizes.pp < 1) return InvalidArgument("pp must be at least 1, not ", sizes.pp);
  const int64_t model = int64_t{sizes.tp} * sizes.pp;
  if (world_size % model == 0) return OkStatus();
  const char* hint = world_size == 1 ? "; start the command under mpirun or tessera launch" : "";
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
  tp_ = world->Split(at.pp * at.dp_size + at.dp, at.tp, "tp");
  dp_ = world->Split(at.pp * sizes.tp + at.tp, at.dp, "dp");
  pp_ = world->Split(at.dp * sizes.tp + at.tp, at.pp, "pp");
  model_ = world->Split(at.dp, at.pp * sizes.tp + at.tp, "model");
}

Mesh::Mesh(const MeshSizes& sizes, int world_size, int rank, const GroupMaker& make) {
  const Place at = PlaceOf(sizes, world_size, rank);
  world_ = make(rank, world_size, "world");
  tp_ = make(at.tp, sizes.tp, "tp");
  dp_ = make(at.dp, at.dp_size, "dp");
  pp_ = make(at.pp, sizes.pp, "pp");
  model_ = make(at.pp * sizes.tp + at.tp, sizes.pp * sizes.tp, "model");
}

int Mesh::printing_rank() const { return (pp_->size() - 1) * dp_->size() * tp_->size(); }

std::string Mesh::Describe() const {
  return Concat("rank ", world_->rank(), " (dp ", dp_->rank(), ", pp ", pp_->rank(), ", tp ",
                tp_->rank(), ")");
}

}  // namespace tessera::dist
