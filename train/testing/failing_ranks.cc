// SPDX-License-Identifier: Apache-2.0
// A program of many ranks that fails as its argument says: what run_on_ranks_test.cc runs.
#include <cstdio>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "core/tensor.h"
#include "dist/mesh/mesh.h"
#include "train/ranks/agreement.h"
#include "train/ranks/run_on_ranks.h"

namespace tessera {
namespace {

Status Body(const std::string& mode, const dist::World& world) {
  const bool guilty = world.rank == world.size - 1;
  if (mode == "agree") {
    const dist::Mesh mesh(world.communicator, {});
    return train::Agree(mesh, guilty ? NotFound("text.txt: no such file") : OkStatus());
  }
  if (guilty && mode == "throw") throw Error("matmul", "cannot multiply\nthese");
  if (guilty && mode == "status") return InvalidArgument("no 'vocab_size'");
  const Tensor sum = Full({1}, 1.0);
  world.communicator->AllReduce(sum, ReduceOp::kSum)->Wait();
  if (world.rank == 0) std::printf("sum %g\n", sum.Item());
  return OkStatus();
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  return tessera::train::RunOnRanks(
      {}, [&](const tessera::dist::World& world) { return tessera::Body(mode, world); });
}
