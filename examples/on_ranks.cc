// SPDX-License-Identifier: Apache-2.0
// The program of docs/programs-on-ranks.md, which shows what it prints on two ranks.
//
//   mpirun -n 2 on_ranks             or `on_ranks throw`, `on_ranks agree`: to see ranks fail
#include <iostream>
#include <string>

#include <tessera/dist/comm/world.h>
#include <tessera/dist/mesh/mesh.h>
#include <tessera/nn/linear.h>
#include <tessera/ops/collective/collective.h>
#include <tessera/ops/elementwise/elementwise.h>
#include <tessera/ops/reduction/reduction.h>
#include <tessera/train/ranks/agreement.h>
#include <tessera/train/ranks/run_on_ranks.h>

using namespace tessera;

namespace {

// What ranks exchange with one another.
void Exchange(const dist::World& world) {
  const Tensor sum = Full({2}, world.rank + 1.0);
  world.communicator->AllReduce(sum, ReduceOp::kSum)->Wait();
  const Tensor mine = Full({1}, 10.0 * world.rank);
  const Tensor all = Empty({world.size});
  world.communicator->AllGather(all, mine)->Wait();
  if (world.rank == 0) std::cout << "sum " << sum << "\nall " << all << "\n";
}

// The same on the tape: gradients come back through it.
void ExchangeOnTheTape(const dist::World& world) {
  const Tensor x = RequireGrad(Full({1}, world.rank + 1.0));
  const Tensor total = ReduceFromGroup(Square(x), world.communicator);
  Backward(Sum(total));
  if (world.rank == 0) std::cout << "total " << total << ", gradient " << Grad(x) << "\n";
}

// Every rank has half of the layer, as its group says.
void ShareALayer(const dist::World& world) {
  const dist::Mesh mesh(world.communicator, {.tp = world.size});
  const nn::Scope root = nn::Scope::Root({.seed = 1, .tensor_parallel = mesh.tp()});
  nn::ColumnParallelLinear layer({.in_features = 3, .out_features = 4}, root);
  if (mesh.prints()) {
    std::cout << mesh.Describe() << " has " << layer.weight().tensor.shape() << " of "
              << layer.weight().placement.global_shape() << "\n";
  }
}

// As each rank by itself would: here the last one has no file.
Status OpenData(const dist::World& world) {
  if (world.rank + 1 < world.size) return OkStatus();
  return NotFound("words.txt: No such file or directory");
}

Status Body(const dist::World& world, const std::string& failure) {
  if (failure == "agree") {
    const dist::Mesh mesh(world.communicator, {});
    TESSERA_RETURN_IF_ERROR(train::Agree(mesh, OpenData(world)));
  }
  if (failure == "throw" && world.rank == 1) Full({2}, 1.0) + Full({3}, 1.0);
  Exchange(world);
  ExchangeOnTheTape(world);
  ShareALayer(world);
  return OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string failure = argc > 1 ? argv[1] : "";
  return train::RunOnRanks({}, [&](const dist::World& world) { return Body(world, failure); });
}
