// SPDX-License-Identifier: Apache-2.0
#include "train/boost/coordinator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "core/thread_communicator.h"
#include "train/ranks/agreement.h"

namespace tessera::train {
namespace {

// Four ranks on two machines.
RankPlace PlaceOf(int rank) {
  return {.local_rank = rank % 2, .local_leader = rank / 2 * 2, .local_size = 2};
}

void OnFourRanks(const std::function<void(const Coordinator&)>& body) {
  RunRanks(4, [&](const std::shared_ptr<Communicator>& world) {
    body(Coordinator(world, PlaceOf(world->rank())));
  });
}

TEST(CoordinatorTest, KnowsItsPlace) {
  OnFourRanks([](const Coordinator& coordinator) {
    EXPECT_EQ(coordinator.world_size(), 4);
    EXPECT_EQ(coordinator.is_master(), coordinator.rank() == 0);
    EXPECT_EQ(coordinator.local_rank(), coordinator.rank() % 2);
    EXPECT_EQ(coordinator.is_node_master(), coordinator.rank() % 2 == 0);
  });
  // Threads of one process are on one machine.
  RunRanks(3, [](const std::shared_ptr<Communicator>& world) {
    const Coordinator coordinator(world);
    EXPECT_EQ(coordinator.local_rank(), world->rank());
  });
}

TEST(CoordinatorTest, WorkOfTheMasterIsDoneBeforeAnyRankGoesOn) {
  std::atomic<int> runs = 0;
  OnFourRanks([&](const Coordinator& coordinator) {
    const Status status = coordinator.OnMaster([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ++runs;
      return OkStatus();
    });
    EXPECT_TRUE(status.ok());
    EXPECT_EQ(runs, 1);
    coordinator.BlockAll();
    EXPECT_TRUE(coordinator.OnNodeMasters([&] { return ++runs, OkStatus(); }).ok());
    EXPECT_EQ(runs, 3);
  });
}

TEST(CoordinatorTest, AFailureOfTheMasterIsEveryRanks) {
  OnFourRanks([](const Coordinator& coordinator) {
    const Status refused = coordinator.OnMaster([] { return NotFound("no such file"); });
    EXPECT_EQ(Message(refused), "rank 0: no such file");
    EXPECT_TRUE(IsAgreed(refused));
    const Status thrown =
        coordinator.OnMaster([]() -> Status { throw std::runtime_error("out of paper"); });
    EXPECT_EQ(Message(thrown), "rank 0: out of paper");
  });
}

TEST(CoordinatorTest, OneRankGoesThroughABlockBeforeTheOthers) {
  for (int executor = 0; executor < 4; ++executor) {
    std::atomic<bool> done = false;
    OnFourRanks([&](const Coordinator& coordinator) {
      const auto turn = coordinator.PriorityExecution(executor);
      if (coordinator.rank() == executor) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        done = true;
      }
      EXPECT_TRUE(done) << coordinator.rank() << " before " << executor;
    });
  }
}

TEST(CoordinatorTest, MachinesDoNotWaitForOneAnother) {
  std::atomic<bool> done[2] = {false, false};
  OnFourRanks([&](const Coordinator& coordinator) {
    const int node = coordinator.rank() / 2;
    const auto turn = coordinator.NodePriorityExecution(1);
    if (coordinator.local_rank() == 1) {
      if (node == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      done[node] = true;
    }
    EXPECT_TRUE(done[node]);
  });
}

TEST(CoordinatorTest, ARankThatFailsInABlockLeavesNobodyWaiting) {
  std::atomic<int> told = 0, caught = 0;
  OnFourRanks([&](const Coordinator& coordinator) {
    try {
      const auto turn = coordinator.PriorityExecution(2);
      if (coordinator.rank() == 2) throw std::runtime_error("the disk is full");
      ADD_FAILURE() << "rank " << coordinator.rank() << " began";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "coordinator: rank 2 of group world failed in the block that it went through "
                   "first");
      ++told;
    } catch (const std::runtime_error&) {
      ++caught;
    }
    // One of the others fails: the rest is not concerned.
    try {
      const auto turn = coordinator.PriorityExecution();
      if (coordinator.rank() == 1) throw std::runtime_error("mine alone");
    } catch (const std::runtime_error&) {
      ++caught;
    }
    coordinator.BlockAll();
  });
  EXPECT_EQ(told, 3);
  EXPECT_EQ(caught, 2);
}

TEST(CoordinatorTest, TheMasterPrintsOnce) {
  testing::internal::CaptureStdout();
  OnFourRanks([](const Coordinator& coordinator) {
    coordinator.PrintOnMaster("loss 1.5");
    coordinator.BlockAll();
    coordinator.PrintOnNodeMaster("ready");
  });
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "loss 1.5\nready\nready\n");
}

TEST(CoordinatorTest, RefusesARankThatIsNotThere) {
  OnFourRanks([](const Coordinator& coordinator) {
    EXPECT_THROW((void)coordinator.PriorityExecution(4), Error);
  });
}

}  // namespace
}  // namespace tessera::train
