// SPDX-License-Identifier: Apache-2.0
// Our communicator against raw MPI on the same ranks in one run, alternating:
//
//   mpirun -n 2 --bind-to core bazel-bin/dist/comm/mpi_benchmark
//
// Prints per operation and size the median time of each, and raw / ours (1 is equal).

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "base/status.h"
#include "dist/comm/mpi_communicator.h"

namespace tessera::dist {
namespace {

double Seconds(const std::function<void()>& body, int repeats) {
  Mpi().Barrier(Mpi().comm_world);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) body();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  return time.count() / repeats;
}

double Median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return times[times.size() / 2];
}

void Compare(const char* name, int64_t bytes, const std::function<void()>& raw,
             const std::function<void()>& ours) {
  const int repeats = static_cast<int>(std::clamp<int64_t>((16 << 20) / bytes, 2, 2000));
  std::vector<double> raw_times, our_times;
  Seconds(raw, repeats);
  Seconds(ours, repeats);
  for (int round = 0; round < 15; ++round) {
    raw_times.push_back(Seconds(raw, repeats));
    our_times.push_back(Seconds(ours, repeats));
  }
  double times[] = {Median(raw_times), Median(our_times)};
  Mpi().Allreduce(MPI_IN_PLACE, times, 2, Mpi().double_type, Mpi().op_max, Mpi().comm_world);
  int rank = 0;
  Mpi().Comm_rank(Mpi().comm_world, &rank);
  if (rank != 0) return;
  std::printf("| %s | %lld | %.1f | %.1f | %.2f |\n", name, static_cast<long long>(bytes),
              times[0] * 1e6, times[1] * 1e6, times[0] / times[1]);
  std::fflush(stdout);
}

int Run() {
  auto started = MpiRuntime::Start({});
  if (!started.ok()) {
    std::fprintf(stderr, "%s\n", Message(started.status()).c_str());
    return 1;
  }
  const auto world = MpiWorldCommunicator(*std::move(started));
  const int rank = world->rank();
  if (rank == 0) std::printf("| operation | bytes | raw, us | ours, us | raw / ours |\n");
  for (const int64_t bytes : {8LL, 1024LL, 64LL << 10, 1LL << 20, 8LL << 20, 64LL << 20}) {
    const int64_t n = std::max<int64_t>(1, bytes / 4);
    const int count = static_cast<int>(n);
    const Tensor a = Full({n}, 0);
    const Tensor all = Full({n * world->size()}, 0);
    Compare(
        "all-reduce", bytes,
        [&] {
          Mpi().Allreduce(MPI_IN_PLACE, a.raw_data(), count, Mpi().float_type, Mpi().op_sum,
                          Mpi().comm_world);
        },
        [&] { world->AllReduce(a, ReduceOp::kSum)->Wait(); });
    Compare(
        "all-gather", bytes,
        [&] {
          Mpi().Allgather(a.raw_data(), count, Mpi().float_type, all.raw_data(), count,
                          Mpi().float_type, Mpi().comm_world);
        },
        [&] { world->AllGather(all, a)->Wait(); });
    Compare(
        "reduce-scatter", bytes,
        [&] {
          Mpi().Reduce_scatter_block(all.raw_data(), a.raw_data(), count, Mpi().float_type,
                                     Mpi().op_sum, Mpi().comm_world);
        },
        [&] { world->ReduceScatter(a, all, ReduceOp::kSum)->Wait(); });
    Compare(
        "broadcast", bytes,
        [&] { Mpi().Bcast(a.raw_data(), count, Mpi().float_type, 0, Mpi().comm_world); },
        [&] { world->Broadcast(a, 0)->Wait(); });
    const int peer = rank ^ 1;
    if (peer >= world->size()) continue;
    Compare(
        "ping-pong", bytes,
        [&] {
          if (rank % 2 == 0)
            Mpi().Send(a.raw_data(), count, Mpi().float_type, peer, 0, Mpi().comm_world);
          Mpi().Recv(a.raw_data(), count, Mpi().float_type, peer, 0, Mpi().comm_world,
                     MPI_STATUS_IGNORE);
          if (rank % 2 == 1)
            Mpi().Send(a.raw_data(), count, Mpi().float_type, peer, 0, Mpi().comm_world);
        },
        [&] {
          if (rank % 2 == 0) world->Send(a, peer, 0)->Wait();
          world->Receive(a, peer, 0)->Wait();
          if (rank % 2 == 1) world->Send(a, peer, 0)->Wait();
        });
  }
  return 0;
}

}  // namespace
}  // namespace tessera::dist

int main() { return tessera::dist::Run(); }
