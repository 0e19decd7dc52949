// SPDX-License-Identifier: Apache-2.0
// What every communicator does, over ranks as threads, MPI and TCP: the ranks of `mpirun -n N` run
// the tests together, with N threads for the comparison.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/thread_communicator.h"
#include "dist/comm/mpi_communicator.h"
#include "dist/comm/socket_communicator.h"

namespace tessera::dist {
namespace {

std::shared_ptr<MpiRuntime> mpi;
std::shared_ptr<SocketMesh> sockets;

using Body = std::function<void(Communicator& world)>;

// What the ranks are.
class CommunicatorTest : public testing::TestWithParam<std::string> {
 protected:
  void OnRanks(const Body& body) {
    const auto world = MpiWorldCommunicator(mpi);
    if (GetParam() == "mpi") {
      body(*world);
    } else if (GetParam() == "tcp") {
      body(*SocketWorldCommunicator(sockets));
    } else if (world->rank() == 0) {
      RunRanks(world->size(), [&](std::shared_ptr<Communicator> threads) { body(*threads); });
    }
    world->Barrier();
  }
};

// Element i of rank r: small integers, exact in every dtype.
double Value(int rank, int64_t i) { return static_cast<double>((rank * 7 + i * 3) % 5); }

Tensor Pattern(int rank, int64_t n, DType dtype) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(Value(rank, i));
  return CastCopy(Tensor::FromVector<double>(values, {n}), dtype);
}

std::vector<double> Expected(int size, int64_t n, ReduceOp op) {
  std::vector<double> result;
  for (int64_t i = 0; i < n; ++i) {
    double sum = Value(0, i);
    for (int r = 1; r < size; ++r) {
      const double v = Value(r, i);
      sum = op == ReduceOp::kSum ? sum + v
                                 : (op == ReduceOp::kMax ? std::max(sum, v) : std::min(sum, v));
    }
    result.push_back(sum);
  }
  return result;
}

constexpr DType kNumbers[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                              DType::kInt64,   DType::kInt32,    DType::kUInt8};
constexpr int64_t kCounts[] = {0, 1, 7, 1000, 40001};

TEST_P(CommunicatorTest, AllReduce) {
  OnRanks([](Communicator& world) {
    for (const DType dtype : kNumbers) {
      for (const int64_t n : kCounts) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
          const Tensor t = Pattern(world.rank(), n, dtype);
          world.AllReduce(t, op)->Wait();
          EXPECT_EQ(t.ToVector<double>(), Expected(world.size(), n, op)) << dtype << " x " << n;
        }
      }
    }
  });
}

TEST_P(CommunicatorTest, ReduceScatter) {
  OnRanks([](Communicator& world) {
    for (const DType dtype : kNumbers) {
      for (const int64_t n : kCounts) {
        const Tensor in = Pattern(world.rank(), n * world.size(), dtype);
        const Tensor out = Zeros({n}, dtype);
        world.ReduceScatter(out, in, ReduceOp::kSum)->Wait();
        const auto all = Expected(world.size(), n * world.size(), ReduceOp::kSum);
        const auto begin = all.begin() + world.rank() * n;
        EXPECT_EQ(out.ToVector<double>(), std::vector<double>(begin, begin + n)) << dtype;
        EXPECT_EQ(in.ToVector<double>(),
                  Pattern(world.rank(), n * world.size(), dtype).ToVector<double>());
      }
    }
  });
}

TEST_P(CommunicatorTest, AllGatherBroadcastAllToAll) {
  OnRanks([](Communicator& world) {
    const int size = world.size();
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kInt64,
                              DType::kInt32, DType::kUInt8, DType::kBool}) {
      const auto convert = [&](double v) { return dtype == DType::kBool ? (v != 0) : v; };
      for (const int64_t n : kCounts) {
        const Tensor whole = Zeros({n * size}, dtype);
        world.AllGather(whole, Pattern(world.rank(), n, dtype))->Wait();
        std::vector<double> expected;
        for (int r = 0; r < size; ++r) {
          for (int64_t i = 0; i < n; ++i) expected.push_back(convert(Value(r, i)));
        }
        EXPECT_EQ(whole.ToVector<double>(), expected) << dtype << " x " << n;

        const int root = size - 1;
        const Tensor t = Pattern(world.rank(), n, dtype);
        world.Broadcast(t, root)->Wait();
        EXPECT_EQ(t.ToVector<double>(), Pattern(root, n, dtype).ToVector<double>());

        const Tensor exchanged = Zeros({n * size}, dtype);
        world.AllToAll(exchanged, Pattern(world.rank(), n * size, dtype))->Wait();
        expected.clear();
        for (int r = 0; r < size; ++r) {
          for (int64_t i = 0; i < n; ++i) {
            expected.push_back(convert(Value(r, world.rank() * n + i)));
          }
        }
        EXPECT_EQ(exchanged.ToVector<double>(), expected) << dtype << " x " << n;
      }
    }
  });
}

// Counts of an AllToAll: what rank r sends to rank s is counts(r, s).
using Counts = std::function<int64_t(int from, int to)>;

// Sends elements that tell where they come from, and compares what arrives with it.
void ExpectExchange(Communicator& world, const Counts& counts, DType dtype) {
  SCOPED_TRACE(Concat("rank ", world.rank(), ", ", dtype));
  // Element i of what `from` sends to `to`; exact in every dtype.
  const auto value = [&](int from, int to, int64_t i) {
    const auto v = static_cast<double>((from * 37 + to * 11 + i * 5) % 127);
    return dtype == DType::kBool ? static_cast<double>(v > 60) : v;
  };
  std::vector<int64_t> send, receive;
  std::vector<double> mine, expected;
  for (int r = 0; r < world.size(); ++r) {
    send.push_back(counts(world.rank(), r));
    receive.push_back(counts(r, world.rank()));
    for (int64_t i = 0; i < send.back(); ++i) mine.push_back(value(world.rank(), r, i));
    for (int64_t i = 0; i < receive.back(); ++i) expected.push_back(value(r, world.rank(), i));
  }
  const auto n = std::ssize(expected);
  // Elements beside the result stay as they are.
  const Tensor buffer = Full({n + 2}, 1, dtype);
  const Tensor in = CastCopy(Tensor::FromVector<double>(mine, {std::ssize(mine)}), dtype);
  world.AllToAll(buffer.AsStrided({n}, {1}, 1), receive, in, send)->Wait();
  expected.insert(expected.begin(), 1);
  expected.push_back(1);
  EXPECT_EQ(buffer.ToVector<double>(), expected);
  EXPECT_EQ(in.ToVector<double>(), mine);
}

TEST_P(CommunicatorTest, AllToAllOfUnequalCounts) {
  OnRanks([](Communicator& world) {
    const int size = world.size();
    // Every pair has another count, in both directions; those of every third pair are 0.
    const Counts some = [&](int from, int to) -> int64_t {
      return (from + 2 * to) % 3 == 0 ? 0 : from * size + to + 1;
    };
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                              DType::kInt64, DType::kInt32, DType::kUInt8, DType::kBool}) {
      ExpectExchange(world, some, dtype);
    }
    // Longer than what goes in one piece or in one packet, beside what does not.
    ExpectExchange(
        world, [](int from, int to) { return int64_t{40001} * from + 99 + to; }, DType::kFloat32);
    // A rank that sends nothing receives, and the other way round.
    ExpectExchange(
        world, [](int from, int) { return from == 0 ? 0 : 5; }, DType::kFloat32);
    ExpectExchange(
        world, [](int, int to) { return to == 0 ? 0 : 5; }, DType::kFloat32);
    ExpectExchange(
        world, [](int from, int to) { return from == to ? 3 : 0; }, DType::kBFloat16);
  });
}

TEST_P(CommunicatorTest, ARankWithoutElementsTakesPartInAllToAll) {
  OnRanks([](Communicator& world) {
    const int idle = world.size() - 1;
    const Counts counts = [&](int from, int to) -> int64_t {
      return from == idle || to == idle ? 0 : 3 * from + to + 1;
    };
    ExpectExchange(world, counts, DType::kInt64);
    // Later calls still match, and so do those of ranks that all have nothing.
    ExpectExchange(
        world, [](int, int) { return 0; }, DType::kFloat32);
    ExpectExchange(
        world, [](int from, int to) { return 2 * from + to; }, DType::kFloat32);
  });
}

TEST_P(CommunicatorTest, ViewsInsideALargerTensor) {
  OnRanks([](Communicator& world) {
    const Tensor buffer = Full({10}, -1);
    const Tensor view = buffer.AsStrided({3}, {1}, 4);
    Fill(view, world.rank() + 1);
    world.AllReduce(view, ReduceOp::kMax)->Wait();
    const auto v = static_cast<float>(world.size());
    EXPECT_EQ(buffer.ToVector<float>(), (std::vector<float>{-1, -1, -1, -1, v, v, v, -1, -1, -1}));
    // The own chunk lies already where it belongs.
    const Tensor gathered = Zeros({world.size() * 2});
    const Tensor mine = gathered.AsStrided({2}, {1}, world.rank() * 2);
    Fill(mine, world.rank());
    world.AllGather(gathered, mine)->Wait();
    for (int r = 0; r < world.size(); ++r) EXPECT_EQ(gathered.ToVector<int>()[2 * r + 1], r);
  });
}

TEST_P(CommunicatorTest, HalfPrecisionSumsInFloat32) {
  OnRanks([](Communicator& world) {
    // 256 + 1 is 256 in bfloat16, so that adding there would lose every 1; 2048 + 1 likewise.
    const int others = world.size() - 1;
    for (const auto& [dtype, big] :
         {std::pair{DType::kBFloat16, 256.0}, {DType::kFloat16, 2048.0}}) {
      const Tensor t = Full({5}, world.rank() == 0 ? big : 1.0, dtype);
      const Tensor expected = Full({5}, big + others, dtype);
      world.AllReduce(t, ReduceOp::kSum)->Wait();
      EXPECT_EQ(t.ToVector<float>(), expected.ToVector<float>());
      const Tensor part = Zeros({3}, dtype);
      world
          .ReduceScatter(part, Full({3 * world.size()}, world.rank() == 0 ? big : 1.0, dtype),
                         ReduceOp::kSum)
          ->Wait();
      EXPECT_EQ(part.ToVector<float>()[2], expected.ToVector<float>()[2]);
    }
  });
}

// Sums that depend on their order have it from the ranks, over every transport.
TEST_P(CommunicatorTest, SumsAreInTheOrderOfTheRanks) {
  OnRanks([](Communicator& world) {
    const auto value = [](int rank, int64_t i) {
      return static_cast<float>(std::sin(1.7 * rank + 0.3 * static_cast<double>(i)) *
                                std::pow(10, (rank + i) % 5));
    };
    for (const int64_t n : {1, 5, 4097}) {
      std::vector<float> mine, expected;
      for (int64_t i = 0; i < n; ++i) {
        mine.push_back(value(world.rank(), i));
        float sum = value(0, i);
        for (int r = 1; r < world.size(); ++r) sum += value(r, i);
        expected.push_back(sum);
      }
      const Tensor t = Tensor::FromVector<float>(mine, {n});
      world.AllReduce(t, ReduceOp::kSum)->Wait();
      EXPECT_EQ(t.ToVector<float>(), expected) << n;
    }
  });
}

TEST_P(CommunicatorTest, HandlesOverlapAndAreWaitedForInAnyOrder) {
  OnRanks([](Communicator& world) {
    std::vector<Tensor> tensors;
    std::vector<CommHandlePtr> handles;
    for (int i = 0; i < 12; ++i) {
      tensors.push_back(Full({1000 * i + 1}, i + world.rank()));
      handles.push_back(world.AllReduce(tensors.back(), ReduceOp::kMax));
    }
    for (int i = 11; i >= 0; --i) handles[static_cast<size_t>(i)]->Wait();
    for (int i = 0; i < 12; ++i) {
      const auto values = tensors[static_cast<size_t>(i)].ToVector<float>();
      EXPECT_EQ(values.front(), i + world.size() - 1);
      EXPECT_EQ(values.back(), i + world.size() - 1);
    }
  });
}

TEST_P(CommunicatorTest, MessagesMatchBySourceAndTagInOrder) {
  OnRanks([](Communicator& world) {
    if (world.size() == 1) return;
    const int next = (world.rank() + 1) % world.size();
    const int previous = (world.rank() + world.size() - 1) % world.size();
    std::vector<CommHandlePtr> sends;
    for (int i = 0; i < 6; ++i) {
      sends.push_back(world.Send(Full({3}, world.rank() * 100 + i), next, i % 2));
    }
    // Tag 1 first: 1, 3, 5; then tag 0: 0, 2, 4.
    for (const int i : {1, 3, 5, 0, 2, 4}) {
      const Tensor t = Zeros({3});
      world.Receive(t, previous, i % 2)->Wait();
      EXPECT_EQ(t.ToVector<int>(), std::vector<int>(3, previous * 100 + i));
    }
    // Large messages in both directions at once.
    const auto send = world.Send(Full({300000}, world.rank()), next, 9);
    const Tensor large = Zeros({300000});
    world.Receive(large, previous, 9)->Wait();
    send->Wait();
    EXPECT_EQ(large.ToVector<int>(), std::vector<int>(300000, previous));
  });
}

TEST_P(CommunicatorTest, SplitByColorsAndKeys) {
  OnRanks([](Communicator& world) {
    const auto parity = world.Split(world.rank() % 2 * 5, -world.rank(), "parity");
    EXPECT_EQ(parity->name(), "parity");
    EXPECT_EQ(parity->size(), (world.size() + 1 - world.rank() % 2) / 2);
    const Tensor t = Full({2}, world.rank());
    parity->AllReduce(t, ReduceOp::kMax)->Wait();
    int highest = world.size() - 1;
    if (highest % 2 != world.rank() % 2) --highest;
    EXPECT_EQ(t.ToVector<int>(), std::vector<int>(2, highest));
    // Keys in reverse: rank 0 of the group is its highest world rank.
    const Tensor first = Full({1}, world.rank());
    parity->Broadcast(first, 0)->Wait();
    EXPECT_EQ(first.Item(), highest);
    const auto alone = parity->Split(world.rank(), 0, "alone");
    EXPECT_EQ(alone->size(), 1);
    alone->AllReduce(t, ReduceOp::kSum)->Wait();
    EXPECT_EQ(t.ToVector<int>(), std::vector<int>(2, highest));
  });
}

TEST_P(CommunicatorTest, TwoThreadsOnTwoGroups) {
  OnRanks([](Communicator& world) {
    const auto a = world.Split(0, world.rank(), "a");
    const auto b = world.Split(0, world.rank(), "b");
    const auto work = [](Communicator& group, int seed) {
      for (int i = 0; i < 100; ++i) {
        const Tensor t = Full({1 + i * 50}, seed + i + group.rank());
        group.AllReduce(t, ReduceOp::kMax)->Wait();
        ASSERT_EQ(t.ToVector<int>().back(), seed + i + group.size() - 1);
      }
    };
    // On odd ranks the threads begin in the other order.
    std::thread other(
        [&] { work(world.rank() % 2 == 0 ? *a : *b, world.rank() % 2 == 0 ? 0 : 7); });
    work(world.rank() % 2 == 0 ? *b : *a, world.rank() % 2 == 0 ? 7 : 0);
    other.join();
  });
}

TEST_P(CommunicatorTest, MetaTensorsNeedNoOtherRank) {
  OnRanks([](Communicator& world) {
    if (world.rank() != 0) return;
    const Device meta = Device::Meta();
    world.AllReduce(Empty({3}, DType::kFloat32, meta), ReduceOp::kSum)->Wait();
    world.Broadcast(Empty({3}, DType::kFloat32, meta), 0)->Wait();
  });
}

TEST_P(CommunicatorTest, MisuseThrowsOnTheRankItself) {
  OnRanks([](Communicator& world) {
    EXPECT_THROW(world.AllGather(Zeros({3 * world.size() + 1}), Zeros({3})), Error);
    EXPECT_THROW(world.ReduceScatter(Zeros({3}), Zeros({3 * world.size() + 1}), ReduceOp::kSum),
                 Error);
    EXPECT_THROW(world.Broadcast(Zeros({1}), world.size()), Error);
    if (world.size() > 1) {
      EXPECT_THROW(world.AllToAll(Zeros({world.size() + 1}), Zeros({world.size() + 1})), Error);
    }
    const auto n = static_cast<size_t>(world.size());
    const Tensor t = Zeros({2 * world.size()});
    const std::vector<int64_t> twos(n, 2), threes(n, 3);
    EXPECT_THROW(world.AllToAll(t, twos, t, threes), Error);
    EXPECT_THROW(world.AllToAll(t, threes, t, twos), Error);
    EXPECT_THROW(world.AllToAll(t, twos, t, std::vector<int64_t>(n + 1, 2)), Error);
    EXPECT_THROW(world.AllToAll(t, twos, CastCopy(t, DType::kInt32), twos), Error);
    EXPECT_THROW(world.Send(Zeros({1}), world.rank(), 0), Error);
    EXPECT_THROW(world.Receive(Zeros({1}), world.size(), 0), Error);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorTest, testing::Values("threads", "mpi", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace

int RunTests(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  MpiOptions options;
  // Small, so that operands go in pieces; a second run has them whole.
  if (argc > 1) options.largest_count = std::stoll(argv[1]);
  auto started = MpiRuntime::Start(options);
  if (!started.ok()) {
    std::fprintf(stderr, "%s\n", Message(started.status()).c_str());
    return 1;
  }
  mpi = *std::move(started);
  if (mpi->world()->rank != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    if (std::getenv("MPI_TEST_VERBOSE") == nullptr) {
      class Failures : public testing::EmptyTestEventListener {
        void OnTestPartResult(const testing::TestPartResult& result) override {
          if (result.failed()) std::fprintf(stderr, "%s\n", result.message());
        }
      };
      delete listeners.Release(listeners.default_result_printer());
      listeners.Append(new Failures);
    }
  }
  // The ranks that MPI started meet over TCP as well, at a port that rank 0 finds free.
  const Tensor port = Zeros({1}, DType::kInt64);
  if (mpi->world()->rank == 0) Fill(port, PortOf(*ListenOn(0, 1)));
  MpiWorldCommunicator(mpi)->Broadcast(port, 0)->Wait();
  auto met = SocketMesh::Open({.meeting = {"127.0.0.1", static_cast<int>(port.Item()),
                                           mpi->world()->rank, mpi->world()->size, 30}});
  if (!met.ok()) {
    std::fprintf(stderr, "%s\n", Message(met.status()).c_str());
    return 1;
  }
  sockets = *std::move(met);
  const int result = RUN_ALL_TESTS();
  sockets.reset();
  mpi.reset();
  return result;
}

}  // namespace tessera::dist

int main(int argc, char** argv) { return tessera::dist::RunTests(argc, argv); }
