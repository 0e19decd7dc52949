// SPDX-License-Identifier: Apache-2.0
#include "dist/checkpoint/async_checkpointer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/thread_communicator.h"
#include "nlohmann/json.hpp"

namespace tessera::dist {
namespace {

namespace fs = std::filesystem;
using Ranks = std::shared_ptr<Communicator>;

std::string FreshOut() {
  const std::string out = testing::TempDir() + "/async_" +
                          testing::UnitTest::GetInstance()->current_test_info()->name();
  fs::remove_all(out);
  fs::create_directories(out);
  return out;
}

bool IsThere(const std::string& out, int64_t step) {
  return fs::exists(CheckpointPath(out, step) + "/checkpoint.json");
}

TEST(AsyncCheckpointerTest, SavesWhatTheTensorsHeldAtBegin) {
  const std::string out = FreshOut();
  RunRanks(3, [&](Ranks world) {
    const Share rows = EvenShare(7, 3, world->rank());
    const Placement placement = Placement::Split({7, 40}, 0, {{7, rows.begin, rows.count}});
    const Tensor replica = Zeros({100});
    const Tensor shard = Zeros(placement.local_shape());
    const std::vector<CheckpointTensor> tensors = {{"replica", replica, Placement::Whole({100})},
                                                   {"shard", shard, placement}};
    AsyncCheckpointer saver;
    EXPECT_TRUE(saver.Commit(*world).ok()) << "nothing is pending";
    for (int64_t step = 1; step <= 3; ++step) {
      Fill(replica, static_cast<double>(step));
      Fill(shard, static_cast<double>(10 * step + world->rank()));
      const std::string path = CheckpointPath(out, step);
      ASSERT_TRUE(saver.Begin(path, step, tensors, {{"at", step}}, *world).ok());
      Fill(replica, -1);  // training continues
      Fill(shard, -1);
      EXPECT_TRUE(saver.pending());
      EXPECT_THROW((void)saver.Begin(path, step, tensors, {}, *world), Error);
      while (!saver.written()) std::this_thread::yield();
      EXPECT_FALSE(IsThere(out, step)) << "visible before it is whole";
      world->Barrier();
      ASSERT_TRUE(saver.Commit(*world).ok());
      EXPECT_FALSE(saver.pending());
      EXPECT_TRUE(IsThere(out, step));
    }
    for (int64_t step = 1; step <= 3; ++step) {
      auto checkpoint = Checkpoint::Open(CheckpointPath(out, step), *world);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
      EXPECT_EQ(checkpoint->trainer()["at"], step);
      ASSERT_TRUE(checkpoint->Load(tensors, *world).ok());
      EXPECT_EQ(replica.ToVector<float>(), std::vector<float>(100, static_cast<float>(step)));
      EXPECT_EQ(shard.ToVector<float>(),
                std::vector<float>(static_cast<size_t>(shard.numel()),
                                   static_cast<float>(10 * step + world->rank())));
    }
  });
}

TEST(AsyncCheckpointerTest, CommitWaitsForTheWriter) {
  const std::string out = FreshOut();
  RunRanks(2, [&](Ranks world) {
    const Shape shape = {1 << 20};
    AsyncCheckpointer saver;
    ASSERT_TRUE(saver
                    .Begin(CheckpointPath(out, 1), 1,
                           {{"w", Full(shape, 2), Placement::Whole(shape)}}, {}, *world)
                    .ok());
    ASSERT_TRUE(saver.Commit(*world).ok());
    EXPECT_TRUE(Checkpoint::Open(CheckpointPath(out, 1), *world).ok());
  });
}

TEST(AsyncCheckpointerTest, AbandonedBeforeCommitNothingIsVisible) {
  const std::string out = FreshOut();
  RunRanks(2, [&](Ranks world) {
    {
      AsyncCheckpointer saver;
      const Shape shape = {5 + world->rank()};
      ASSERT_TRUE(saver
                      .Begin(CheckpointPath(out, 1), 1,
                             {{"w" + std::to_string(world->rank()), Full(shape, 2),
                               Placement::Whole(shape)}},
                             {}, *world)
                      .ok());
      while (!saver.written()) std::this_thread::yield();
      world->Barrier();
    }
    world->Barrier();
    EXPECT_TRUE(fs::is_empty(out));
    EXPECT_FALSE(FindNewestCheckpoint(out, *world, [](const std::string&) {})->has_value());
  });
}

TEST(AsyncCheckpointerTest, AFailureComesOutOfCommitByTheNameOfTheRank) {
  const std::string out = FreshOut();
  rlimit old;
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit limit = {64 << 10, old.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  RunRanks(2, [&](Ranks world) {
    const Shape shape = {world->rank() == 1 ? 100000 : 10};
    const std::vector<CheckpointTensor> tensors = {
        {"w" + std::to_string(world->rank()), Full(shape, 1), Placement::Whole(shape)}};
    AsyncCheckpointer saver;
    if (world->rank() == 0) setrlimit(RLIMIT_FSIZE, &limit);
    world->Barrier();
    ASSERT_TRUE(saver.Begin(CheckpointPath(out, 1), 1, tensors, {}, *world).ok());
    const Status failed = saver.Commit(*world);
    EXPECT_EQ(Message(failed).find("rank 1: "), 0u) << failed;
    EXPECT_NE(Message(failed).find("tensors-00001-of-00002.safetensors: File too large"),
              std::string::npos)
        << failed;
    EXPECT_TRUE(fs::is_empty(out));
    world->Barrier();
    if (world->rank() == 0) setrlimit(RLIMIT_FSIZE, &old);
    world->Barrier();
    // The saver continues.
    ASSERT_TRUE(saver.Begin(CheckpointPath(out, 2), 2, tensors, {}, *world).ok());
    EXPECT_TRUE(saver.Commit(*world).ok());
    EXPECT_TRUE(IsThere(out, 2));
  });
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
}

}  // namespace
}  // namespace tessera::dist
