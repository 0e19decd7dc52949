// SPDX-License-Identifier: Apache-2.0
#include "core/thread_communicator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera {
namespace {

TEST(ThreadCommunicatorTest, CollectivesOfThreeRanks) {
  RunRanks(3, [](std::shared_ptr<Communicator> world) {
    const int r = world->rank();
    const Tensor t = Full({2}, r + 1.0);
    world->AllReduce(t, ReduceOp::kSum)->Wait();
    EXPECT_EQ(t.ToVector<float>(), (std::vector<float>{6, 6}));
    const Tensor highest = Full({1}, r, DType::kInt64);
    world->AllReduce(highest, ReduceOp::kMax)->Wait();
    EXPECT_EQ(highest.Item(), 2);

    const Tensor gathered = Zeros({6});
    world->AllGather(gathered, Full({2}, r))->Wait();
    EXPECT_EQ(gathered.ToVector<float>(), (std::vector<float>{0, 0, 1, 1, 2, 2}));

    const Tensor part = Zeros({2});
    world->ReduceScatter(part, gathered, ReduceOp::kSum)->Wait();
    EXPECT_EQ(part.ToVector<float>(), (std::vector<float>{3.0f * r, 3.0f * r}));

    const Tensor sent = Tensor::FromVector<float>({r * 10.f, r * 10.f + 1, r * 10.f + 2}, {3});
    const Tensor got = Zeros({3});
    world->AllToAll(got, sent)->Wait();
    EXPECT_EQ(got.ToVector<float>(), (std::vector<float>{r + 0.f, r + 10.f, r + 20.f}));

    const Tensor b = Full({1}, r);
    world->Broadcast(b, 2)->Wait();
    EXPECT_EQ(b.Item(), 2);

    const Tensor message = Zeros({1});
    world->Send(Full({1}, r), (r + 1) % 3, 7)->Wait();
    world->Receive(message, (r + 2) % 3, 7)->Wait();
    EXPECT_EQ(message.Item(), (r + 2) % 3);
  });
}

TEST(ThreadCommunicatorTest, HalfPrecisionSumsThroughFloat32) {
  RunRanks(4, [](std::shared_ptr<Communicator> world) {
    // 256 + 1 + 1 + 1 is 259 -> 260 in bfloat16; summed in bfloat16 it would stay 256.
    const Tensor t = Full({1}, world->rank() == 0 ? 256.0 : 1.0, DType::kBFloat16);
    world->AllReduce(t, ReduceOp::kSum)->Wait();
    EXPECT_EQ(t.Item(), 260.0);
  });
}

TEST(ThreadCommunicatorTest, SplitMakesIndependentGroups) {
  RunRanks(4, [](std::shared_ptr<Communicator> world) {
    const auto pair = world->Split(world->rank() % 2, -world->rank(), "pair");
    EXPECT_EQ(pair->size(), 2);
    EXPECT_EQ(pair->rank(), world->rank() < 2 ? 1 : 0);
    const Tensor t = Full({1}, world->rank());
    pair->AllReduce(t, ReduceOp::kSum)->Wait();
    EXPECT_EQ(t.Item(), world->rank() % 2 == 0 ? 2 : 4);
  });
}

TEST(ThreadCommunicatorTest, NamesTheRankWithAnotherContract) {
  try {
    RunRanks(3, [](std::shared_ptr<Communicator> world) {
      world->AllReduce(Zeros({world->rank() == 1 ? 3 : 2}), ReduceOp::kSum)->Wait();
    });
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("rank 1 calls all_reduce of float32 x 3"),
              std::string::npos)
        << e.what();
  }
}

// What rank r sends to rank s is 100 r + 10 s + i for the elements i < counts(r, s).
void ExpectExchange(Communicator& world, const std::function<int64_t(int from, int to)>& counts,
                    DType dtype) {
  SCOPED_TRACE(Concat("rank ", world.rank(), ", ", dtype));
  std::vector<int64_t> send, receive, mine, expected;
  for (int r = 0; r < world.size(); ++r) {
    send.push_back(counts(world.rank(), r));
    receive.push_back(counts(r, world.rank()));
    for (int64_t i = 0; i < send.back(); ++i) mine.push_back(100 * world.rank() + 10 * r + i);
    for (int64_t i = 0; i < receive.back(); ++i)
      expected.push_back(100 * r + 10 * world.rank() + i);
  }
  const Tensor in = CastCopy(Tensor::FromVector<int64_t>(mine, {std::ssize(mine)}), dtype);
  const Tensor out = Zeros({std::ssize(expected)}, dtype);
  world.AllToAll(out, receive, in, send)->Wait();
  EXPECT_EQ(out.ToVector<int64_t>(), expected);
}

TEST(ThreadCommunicatorTest, AllToAllOfUnequalCounts) {
  RunRanks(3, [](std::shared_ptr<Communicator> world) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt64, DType::kFloat64}) {
      ExpectExchange(
          *world, [](int from, int to) { return from == 2 && to == 0 ? 0 : 2 * from + to; }, dtype);
    }
    // A rank that has nothing for the others, and they nothing for it; then nobody has anything.
    ExpectExchange(
        *world, [](int from, int to) { return from == 1 || to == 1 ? 0 : from + 1; },
        DType::kFloat32);
    ExpectExchange(
        *world, [](int, int) { return 0; }, DType::kFloat32);
  });
}

std::string ErrorOf(int ranks, const std::function<void(Communicator& world)>& body) {
  try {
    RunRanks(ranks, [&](std::shared_ptr<Communicator> world) { body(*world); });
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(ThreadCommunicatorTest, CountsMustBeTheOperands) {
  const auto error = [](const std::vector<int64_t>& receive, const std::vector<int64_t>& send,
                        DType dtype = DType::kFloat32) {
    return ErrorOf(2, [&](Communicator& world) {
      world.AllToAll(Zeros({4}), receive, Zeros({3}, dtype), send)->Wait();
    });
  };
  const std::string text = "the counts of the 2 ranks of group world are not those of ";
  EXPECT_NE(error({2, 3}, {1, 2}).find(text), std::string::npos) << error({2, 3}, {1, 2});
  for (const std::vector<int64_t>& send :
       std::vector<std::vector<int64_t>>{{1, 1}, {3}, {1, 1, 1}, {-1, 4}}) {
    EXPECT_NE(error({2, 2}, send).find(text), std::string::npos) << error({2, 2}, send);
  }
  EXPECT_NE(error({2, 2}, {1, 2}, DType::kInt32).find("differ in dtype"), std::string::npos);
}

TEST(ThreadCommunicatorTest, NamesWhoWaitsForAnotherNumberThanIsSent) {
  // Rank 1 sends two elements to rank 0, which waits for three.
  const std::string error = ErrorOf(2, [](Communicator& world) {
    const bool first = world.rank() == 0;
    const std::vector<int64_t> receive =
        first ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{1, 1};
    const std::vector<int64_t> send =
        first ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{2, 1};
    world.AllToAll(Zeros({first ? 4 : 2}), receive, Zeros({first ? 2 : 3}), send)->Wait();
  });
  EXPECT_NE(error.find("rank 0 of group world waits for 3 elements of rank 1, which sends 2"),
            std::string::npos)
      << error;
}

TEST(ThreadCommunicatorTest, RanksOfAnAllToAllStillAgreeOnTheDtype) {
  const std::string error = ErrorOf(2, [](Communicator& world) {
    const DType dtype = world.rank() == 0 ? DType::kFloat32 : DType::kInt32;
    world.AllToAll(Zeros({2}, dtype), {1, 1}, Zeros({2}, dtype), {1, 1})->Wait();
  });
  EXPECT_NE(error.find("rank 1 calls all_to_all of int32"), std::string::npos) << error;
}

TEST(ThreadCommunicatorTest, AFailedRankEndsTheOthers) {
  EXPECT_THROW(RunRanks(3,
                        [](std::shared_ptr<Communicator> world) {
                          if (world->rank() == 2) throw Error("test", "rank 2 fails");
                          world->Barrier();
                        }),
               Error);
}

}  // namespace
}  // namespace tessera
