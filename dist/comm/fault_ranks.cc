// SPDX-License-Identifier: Apache-2.0
// A rank of a job in which one rank does wrong: what fault_test.cc runs under mpirun.
//
//   mpirun -n 3 fault_ranks MODE GUILTY_RANK [LIMIT]
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "dist/comm/world.h"
#include "nn/module.h"

namespace tessera::dist {
namespace {

// A module whose forward pass is one collective.
class Probe : public nn::Module {
 public:
  explicit Probe(const std::string& path) : Module({path, nullptr, Build()}) {}
  void Forward(const std::function<void()>& body) {
    const Tensor x = Zeros({1});
    Call(x, [&] {
      body();
      return x;
    });
  }

 private:
  static std::shared_ptr<const nn::BuildContext> Build() {
    return nn::Scope::Root(nn::BuildContext{}).build;
  }
};

void AllReduce(Communicator& group, int64_t count, const std::string& module,
               DType dtype = DType::kFloat32, ReduceOp op = ReduceOp::kSum) {
  Probe(module).Forward([&] { group.AllReduce(Zeros({count}, dtype), op)->Wait(); });
}

void Misbehave(const std::string& mode, const World& world, bool is_guilty) {
  Communicator& all = *world.communicator;
  const auto a = all.Split(0, 0, "a");
  const auto b = all.Split(0, 0, "b");
  AllReduce(all, 8, "h.0.attn");
  if (mode == "skip") {
    if (!is_guilty) AllReduce(all, 8, "h.1.attn");
    AllReduce(all, 8, "h.1.mlp");
  } else if (mode == "dtype") {
    AllReduce(all, 8, "h.1.attn", is_guilty ? DType::kFloat64 : DType::kFloat32);
  } else if (mode == "count") {
    AllReduce(*a, is_guilty ? 7 : 8, "h.1.attn");
  } else if (mode == "operation") {
    AllReduce(all, 8, "h.1.attn", DType::kFloat32, is_guilty ? ReduceOp::kMax : ReduceOp::kSum);
  } else if (mode == "chunks") {
    // Rank r sends r + s elements to rank s; the guilty rank sends its next rank one more.
    std::vector<int64_t> send, receive;
    for (int r = 0; r < a->size(); ++r) {
      send.push_back(world.rank + r);
      receive.push_back(r + world.rank);
    }
    if (is_guilty) ++send[static_cast<size_t>((world.rank + 1) % a->size())];
    const auto total = [](const std::vector<int64_t>& counts) {
      return std::accumulate(counts.begin(), counts.end(), int64_t{0});
    };
    Probe("h.1.mlp").Forward(
        [&] { a->AllToAll(Zeros({total(receive)}), receive, Zeros({total(send)}), send)->Wait(); });
  } else if (mode == "root") {
    all.Broadcast(Zeros({8}), is_guilty ? 1 : 0)->Wait();
  } else if (mode == "reorder") {
    AllReduce(is_guilty ? *b : *a, 8, is_guilty ? "h.1.mlp" : "h.1.attn");
    AllReduce(is_guilty ? *a : *b, 8, is_guilty ? "h.1.attn" : "h.1.mlp");
  } else if (mode == "end") {
    if (!is_guilty) AllReduce(all, 8, "h.1.attn");
  } else if (mode == "hang") {
    if (is_guilty) std::this_thread::sleep_for(std::chrono::seconds(60));
    AllReduce(*a, 8, "h.1.attn");
  } else if (mode == "elsewhere") {
    // The guilty rank waits for a message that nobody sends.
    if (is_guilty) all.Receive(Zeros({3}), world.rank == 0 ? 1 : 0, 5)->Wait();
    AllReduce(*a, 8, "h.1.attn");
  } else if (mode == "stop" || mode == "kill") {
    if (is_guilty) raise(mode == "stop" ? SIGSTOP : SIGKILL);
    AllReduce(*a, 8, "h.1.attn");
  } else if (mode == "throw") {
    if (is_guilty) throw Error("probe", "this rank fails");
    AllReduce(*a, 8, "h.1.attn");
  } else if (mode == "exit") {
    if (is_guilty) std::exit(3);
    AllReduce(*a, 8, "h.1.attn");
  } else if (mode == "message" && world.rank < 2) {
    if (is_guilty) all.Send(Zeros({3}), 1 - world.rank, 5)->Wait();
    if (!is_guilty) all.Receive(Zeros({4}), 1 - world.rank, 5)->Wait();
  } else if (mode == "status") {
    if (is_guilty) {
      std::fprintf(stderr, "error: rank %d cannot continue\n", world.rank);
      world.Abort(1);
    }
    AllReduce(*a, 8, "h.1.attn");
  }
}

int Run(int argc, char** argv) {
  WorldOptions options;
  options.check_collectives = argc <= 3;
  if (argc > 3) options.collective_timeout = std::stod(argv[3]);
  try {
    StatusOr<World> world = OpenWorld(options);
    if (!world.ok()) {
      std::fprintf(stderr, "error: %s\n", Message(world.status()).c_str());
      return 2;
    }
    std::fprintf(stderr, "pid %d\n", static_cast<int>(getpid()));
    Misbehave(argv[1], *world, world->rank == std::stoi(argv[2]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tessera::dist

int main(int argc, char** argv) { return argc < 3 ? 2 : tessera::dist::Run(argc, argv); }
