// SPDX-License-Identifier: Apache-2.0
#include "dist/checkpoint/memory_checkpoints.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/thread_communicator.h"
#include "nlohmann/json.hpp"

namespace tessera::dist {
namespace {

namespace fs = std::filesystem;
using Ranks = std::shared_ptr<Communicator>;

std::string FreshFolder() {
  const std::string folder = testing::TempDir() + "/memory_" +
                             testing::UnitTest::GetInstance()->current_test_info()->name();
  fs::remove_all(folder);
  return folder;
}

// A tensor that all ranks hold and one that they share out, both full of `value`.
std::vector<CheckpointTensor> TensorsOf(const Communicator& world, double value) {
  const Share rows = EvenShare(9, world.size(), world.rank());
  const Placement placement = Placement::Split({9, 5}, 0, {{9, rows.begin, rows.count}});
  std::vector<CheckpointTensor> tensors = {{"all", Zeros({30}), Placement::Whole({30})},
                                           {"rows", Zeros(placement.local_shape()), placement}};
  for (CheckpointTensor& t : tensors) Fill(t.tensor, value);
  return tensors;
}

MemoryFolder Place(const std::string& root, const std::vector<std::string>& hosts, int rank) {
  const std::string& host = hosts[static_cast<size_t>(rank)];
  return {.folder = root + "/" + host, .host = host};
}

void SaveSteps(const std::string& root, const std::vector<std::string>& hosts, int64_t steps) {
  RunRanks(static_cast<int>(hosts.size()), [&](Ranks world) {
    MemoryCheckpoints memory(Place(root, hosts, world->rank()), *world);
    for (int64_t step = 1; step <= steps; ++step) {
      const std::vector<CheckpointTensor> tensors = TensorsOf(*world, static_cast<double>(step));
      const Status saved = memory.Save(step, tensors, {{"step", step}});
      ASSERT_TRUE(saved.ok()) << Message(saved);
    }
  });
}

// Brings every file of a step to all hosts, as agents do.
void ShareFiles(const std::string& root, const std::vector<std::string>& hosts, int64_t step) {
  for (const std::string& from : hosts) {
    for (const fs::directory_entry& file :
         fs::directory_iterator(CheckpointPath(root + "/" + from, step))) {
      for (const std::string& to : hosts) {
        if (to == from) continue;
        fs::copy(file, CheckpointPath(root + "/" + to, step), fs::copy_options::skip_existing);
      }
    }
  }
}

void ExpectNewest(const std::string& root, const std::vector<std::string>& hosts, int64_t step) {
  RunRanks(static_cast<int>(hosts.size()), [&](Ranks world) {
    const MemoryCheckpoints memory(Place(root, hosts, world->rank()), *world);
    const auto newest = memory.FindNewest();
    ASSERT_TRUE(newest.ok()) << Message(newest.status());
    ASSERT_EQ(newest->has_value(), step > 0);
    if (step == 0) return;
    EXPECT_EQ((*newest)->step(), step);
    EXPECT_EQ((*newest)->trainer()["step"], step);
    const std::vector<CheckpointTensor> tensors = TensorsOf(*world, -1);
    const Status loaded = (*newest)->Load(tensors, *world);
    ASSERT_TRUE(loaded.ok()) << Message(loaded);
    for (const CheckpointTensor& t : tensors) {
      for (const float x : t.tensor.ToVector<float>()) EXPECT_EQ(x, static_cast<float>(step));
    }
  });
}

TEST(MemoryCheckpointsTest, OneHostKeepsTheNewestTwo) {
  const std::string root = FreshFolder();
  SaveSteps(root, {"a", "a", "a"}, 3);
  EXPECT_EQ(ListCheckpoints(root + "/a"), (std::vector<int64_t>{2, 3}));
  ExpectNewest(root, {"a", "a", "a"}, 3);
  ExpectNewest(root, {"a"}, 3);  // on another number of ranks
}

// The other hosts together hold every file of the one that was lost.
TEST(MemoryCheckpointsTest, AnyHostMayBeLost) {
  const std::vector<std::vector<std::string>> layouts = {{"a", "b"},
                                                         {"a", "a", "b", "b"},
                                                         {"a", "a", "a", "b"},
                                                         {"a", "b", "c"},
                                                         {"b", "a", "a", "b"}};
  for (const std::vector<std::string>& hosts : layouts) {
    for (const std::string lost : {"a", "b", "c"}) {
      const std::string root = FreshFolder();
      SaveSteps(root, hosts, 2);
      fs::remove_all(root + "/" + lost);
      std::vector<std::string> left;
      for (const std::string& host : hosts) {
        if (host != lost) left.push_back(host);
      }
      if (left.size() == hosts.size()) continue;
      ShareFiles(root, left, 2);
      ExpectNewest(root, left, 2);
    }
  }
}

TEST(MemoryCheckpointsTest, AStepThatAHostLacksIsPassedOver) {
  const std::string root = FreshFolder();
  const std::vector<std::string> hosts = {"a", "b"};
  SaveSteps(root, hosts, 2);
  ShareFiles(root, hosts, 1);
  fs::remove_all(CheckpointPath(root + "/b", 2));
  ExpectNewest(root, hosts, 1);
  // Rank 0 reads its own file first.
  fs::remove(CheckpointPath(root + "/a", 1) + "/tensors-00000-of-00002.safetensors");
  ExpectNewest(root, hosts, 0);
}

TEST(MemoryCheckpointsTest, AFullHostIsAFailureOfAllRanks) {
  const std::string root = FreshFolder();
  fs::create_directories(root);
  std::FILE* const in_the_way = std::fopen((root + "/b").c_str(), "w");
  ASSERT_NE(in_the_way, nullptr);
  std::fclose(in_the_way);
  const std::vector<std::string> hosts = {"a", "b"};
  RunRanks(2, [&](Ranks world) {
    MemoryCheckpoints memory(Place(root, hosts, world->rank()), *world);
    const Status saved = memory.Save(1, TensorsOf(*world, 1), {});
    EXPECT_FALSE(saved.ok());
    EXPECT_NE(Message(saved).find("rank 1"), std::string::npos) << Message(saved);
  });
  EXPECT_TRUE(ListCheckpoints(root + "/a").empty());
}

}  // namespace
}  // namespace tessera::dist
