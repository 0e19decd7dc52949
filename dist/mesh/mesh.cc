#include "dist/mesh/mesh.h"

#include "core/error.h"

namespace tessera::dist {

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
  const Status valid = CheckMesh(sizes, world->size());
  TESSERA_CHECK(valid.ok(), "mesh", Message(valid));
  const int rank = world->rank();
  const int dp_size = world->size() / (sizes.tp * sizes.pp);
  const int tp_rank = rank % sizes.tp;
  const int dp_rank = rank / sizes.tp % dp_size;
  const int pp_rank = rank / (sizes.tp * dp_size);
  tp_ = world->Split(pp_rank * dp_size + dp_rank, tp_rank, "tp");
  dp_ = world->Split(pp_rank * sizes.tp + tp_rank, dp_rank, "dp");
  pp_ = world->Split(dp_rank * sizes.tp + tp_rank, pp_rank, "pp");
  model_ = world->Split(dp_rank, pp_rank * sizes.tp + tp_rank, "model");
}

int Mesh::printing_rank() const { return (pp_->size() - 1) * dp_->size() * tp_->size(); }

std::string Mesh::Describe() const {
  return Concat("rank ", world_->rank(), " (dp ", dp_->rank(), ", pp ", pp_->rank(), ", tp ",
                tp_->rank(), ")");
}

}  // namespace tessera::dist
