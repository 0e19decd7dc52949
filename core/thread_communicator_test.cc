// SPDX-License-Identifier: Apache-2.0
#include "core/thread_communicator.h"

#include <gtest/gtest.h>

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
